//! Scripts that call tools. Most of these are what a script, or what it leaves behind, must not be able to do.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hermes_agent::{CodeMode, Tool, ToolResult};
use hermes_policy::{Choice, Mode};
use hermes_types::Network;
use serde_json::{Value, json};

use crate::bed::{Bed, Kind, Session};
use crate::ground::{Ground, running, until};

/// How a script speaks to the agent without the module.
const RAW: &str = r#"
import json, os, socket
def link():
    one = socket.socket(socket.AF_UNIX)
    one.connect(os.environ["HERMES_RPC_SOCKET"])
    return one
def frame(text):
    return len(text).to_bytes(4, "big") + text
def hello(token=None):
    return frame(json.dumps({"token": token or os.environ["HERMES_RPC_TOKEN"]}).encode())
def rest(one):
    data = b""
    while True:
        try:
            more = one.recv(65536)
        except ConnectionResetError:
            return data + b"reset"
        if not more:
            return data
        data += more
"#;

/// A time to sleep that no other process has in its command line.
fn nap() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 1_000_000 + std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Starts a process that gets away from its parents, from their session and from their pipes.
fn runaway(command: &str) -> String {
    format!(
        r#"
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        {command}
    os._exit(0)
os.wait()
"#
    )
}

fn text(done: &ToolResult) -> String {
    done.content["output"].as_str().unwrap().to_owned()
}

/// The answer without the time it took.
fn told(done: &ToolResult) -> Value {
    let mut answer = done.content.clone();
    assert!(answer.as_object_mut().unwrap().remove("duration_seconds").unwrap().as_f64().unwrap() >= 0.0);
    answer
}

fn success(output: &str, calls: u32) -> Value {
    json!({"status": "success", "output": output, "tool_calls_made": calls})
}

pub(crate) async fn what_a_script_prints_and_what_its_calls_answer_comes_back(bed: &Bed) {
    let s = bed.hands().await;
    let done = s.run("print('ä', 1 + 1)").await;
    assert_eq!((told(&done), done.succeeded), (success("ä 2\n", 0), true));
    let code = r#"
from hermes_tools import terminal
answer = terminal("echo $((6 * 7)); exit 3")
print(sorted(answer), answer["exit_code"], answer["output"].strip())
print(terminal("pwd", workdir="/")["output"].strip(), terminal("sleep 100", timeout=1)["exit_code"])
"#;
    let done = s.run(code).await;
    assert_eq!(told(&done), success("['error', 'exit_code', 'output'] 3 42\n/ 124\n", 3));
    let long = format!("text = {:?}\nprint(len(text))", "x".repeat(900_000));
    assert_eq!(told(&s.run(&long).await), success("900000\n", 0));
}

pub(crate) async fn every_function_does_what_its_tool_does(bed: &Bed) {
    let s = bed.hands().await;
    let code = r#"
from hermes_tools import patch, read_file, search_files, terminal, web_fetch, write_file
print(write_file("a.txt", "one\ntwo\n").get("error"))
print(patch("a.txt", "two", "three").get("error"), "three" in read_file("a.txt", 2, 1)["content"])
print(search_files("thr.e", path=".")["total_count"], terminal("cat a.txt")["output"].split())
print("error" in read_file("missing"), "error" in web_fetch("http://169.254.169.254/latest"))
print(sorted(search_files("*.txt", "files")["files"]))
"#;
    let done = s.run(code).await;
    let printed = "None\nNone True\n1 ['one', 'three']\nTrue True\n";
    assert!(text(&done).starts_with(printed) && text(&done).contains("a.txt"), "{done:?}");
    assert_eq!(done.content["tool_calls_made"], 8);
    // What threads write at once is whole, and those who write the same wait for each other.
    let code = r#"
import threading
from hermes_tools import read_file, write_file
def write(n):
    write_file("f%d.txt" % (n % 4), ("%d\n" % n) * 1000)
threads = [threading.Thread(target=write, args=(n,)) for n in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print([len(set(open("f%d.txt" % n).read().split())) for n in range(4)])
"#;
    assert_eq!(told(&s.run(code).await), success("[1, 1, 1, 1]\n", 20));
}

pub(crate) async fn what_is_wrong_with_a_script_is_told(bed: &Bed) {
    let s = bed.hands().await;
    for (code, error) in [(" \n", "no code"), (&*"#".repeat((1 << 20) + 1), "1048577 bytes")] {
        let done = s.run(code).await;
        assert!(done.content["error"].as_str().unwrap().contains(error) && !done.succeeded, "{done:?}");
    }
    let done = s.run("print('before')\nx = (\n").await;
    assert!(done.content["error"].as_str().unwrap().starts_with("SyntaxError"), "{done:?}");
    assert!(!text(&done).contains("before") && text(&done).contains("script.py"), "{done:?}");
    let done = s.run("def f():\n    raise ValueError('of mine')\nprint('before')\nf()").await;
    let output = text(&done);
    assert_eq!(
        (&done.content["status"], &done.content["error"], done.succeeded),
        (&json!("error"), &json!("ValueError: of mine"), false)
    );
    assert!(output.starts_with("before\n--- stderr ---\nTraceback"), "{output}");
    assert!(output.contains("raise ValueError('of mine')") && !output.contains("start.py"), "{output}");
    let done = s.run("import sys; sys.exit(7)").await;
    assert_eq!(done.content["error"], "the script ended with code 7", "{done:?}");
    let done = s.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").await;
    assert_eq!(done.content["error"], "the script ended with code 137", "{done:?}");
}

pub(crate) async fn answers_are_never_crossed_between_threads_and_processes(bed: &Bed) {
    let mut bed = bed.clone();
    bed.code.max_tool_calls = 2000;
    let s = bed.hands().await;
    let code = r#"
import hermes_tools, os, sys, threading
crossed = []
def work(who):
    for turn in range(50):
        mine = "%s_%d" % (who, turn)
        if turn % 10:
            answer = hermes_tools._call("terminal", **{mine: 1})["error"]
            right = answer == "terminal takes no %s in a script" % mine
        else:
            answer = hermes_tools.terminal("echo " + mine)["output"]
            right = answer.strip() == mine
        if not right:
            crossed.append((mine, answer))
def all(name, count):
    threads = [threading.Thread(target=work, args=("%s_%d" % (name, n),)) for n in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
hermes_tools.terminal("true")
child = os.fork()
if child == 0:
    all("child", 3)
    os._exit(len(crossed))
all("parent", 20)
def small(who):
    if hermes_tools.terminal("echo " + who)["output"].strip() != who:
        crossed.append(who)
many = [threading.Thread(target=small, args=("m%d" % n,)) for n in range(100)]
[thread.start() for thread in many]
[thread.join() for thread in many]
def apart(who):
    pid = os.fork()
    if pid == 0:
        small(who)
        os._exit(len(crossed))
    return pid
pids = [apart("p%d" % n) for n in range(6)]
print([os.waitpid(pid, 0)[1] for pid in pids])
print(crossed, os.waitpid(child, 0)[1])
"#;
    assert_eq!(
        told(&s.run(code).await),
        success("[0, 0, 0, 0, 0, 0]\n[] 0\n", 20 * 50 + 3 * 50 + 1 + 100 + 6)
    );
}

pub(crate) async fn a_script_has_the_conveniences_of_its_module(bed: &Bed) {
    let s = bed.hands().await;
    let code = r#"
from hermes_tools import json_parse, shell_quote, retry
print(json_parse('{"a": "b\tc"}'), shell_quote("it's"))
tries = []
def third():
    tries.append(1)
    if len(tries) < 3:
        raise OSError("not yet")
    return "done"
print(retry(third, delay=0.001), len(tries))
try:
    retry(lambda: 1 / 0, max_attempts=2, delay=0.001)
except ZeroDivisionError as error:
    print(error)
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "from hermes_tools import terminal; print(terminal('echo in')['output'])"],
    capture_output=True, text=True).stdout.strip())
"#;
    let printed = "{'a': 'b\\tc'} 'it'\"'\"'s'\ndone 3\ndivision by zero\nin\n";
    assert_eq!(told(&s.run(code).await), success(printed, 1));
}

pub(crate) async fn a_connection_without_the_token_of_the_run_gets_nothing(bed: &Bed) {
    let s = bed.hands().await;
    let code = RAW.to_owned()
        + r#"
call = frame(b'{"id": 1, "tool": "terminal", "arguments": {"command": "touch stolen"}}')
for first in (hello("x" * 48), hello("x"), frame(b'{}'), frame(b'{"token": 1}'), call, frame(b'')):
    one = link()
    try:
        one.sendall(first + call)
    except OSError:
        pass
    print(b'"answer"' in rest(one))
one = link()
one.sendall(hello() + frame(b'{"id": 9, "tool": "terminal", "arguments": {"command": "ls"}}'))
one.shutdown(socket.SHUT_WR)
print(json.loads(rest(one)[4:]))
"#;
    let answer = "{'id': 9, 'answer': {'exit_code': 0, 'output': '', 'error': None}}\n";
    let printed = "False\n".repeat(6) + answer;
    assert_eq!(told(&s.run(&code).await), success(&printed, 1));
    // The token of one run is not that of another.
    let old = s.run("import os; open('old', 'w').write(os.environ['HERMES_RPC_TOKEN'])").await;
    assert_eq!(told(&old), success("", 0));
    let code = RAW.to_owned()
        + "\none = link()\none.sendall(hello(open('old').read()))\nprint(rest(one)[4:].decode())";
    let printed = "{\"error\":\"the token is not that of this run\"}\n";
    assert_eq!(told(&s.run(&code).await), success(printed, 0));
    s.shell("rm old").await;
}

pub(crate) async fn whatever_a_client_sends_costs_nothing_but_its_connection(bed: &Bed) {
    let s = bed.hands().await;
    let code = RAW.to_owned()
        + r#"
import hermes_tools
def send(*parts):
    one = link()
    try:
        for part in parts:
            one.sendall(part)
    except OSError:
        pass
    return rest(one)
endless = [b"x" * 65536] * 64
for parts in (
    [b"\xff\xff\xff\xff"] + endless,
    endless,
    [hello(), b"\x00\x10\x00\x01"] + endless,
    [hello(), frame(b"not json")],
    [hello(), frame(b'{"id": "one", "tool": "terminal"}')],
    [hello(), frame(b'[1, 2]')],
    [hello(), frame(b'{"id": -1, "tool": "terminal"}')],
    [hello(), frame(b'[' * 100000)],
    [hello(), frame(b'\xff\xfe')],
):
    print(len(send(*parts)) < 10)
# Those that say nothing, or less than they promised, are in nobody's way.
silent = [link() for _ in range(20)]
for one in silent:
    one.sendall(hello() + b"\x00\x08\x00\x00" if one.fileno() % 2 else b"\x00")
print(hermes_tools.terminal("echo still here")["output"].strip())
print(hermes_tools._call("terminal", command="echo " + "x" * 2000000))
"#;
    let printed =
        "True\n".repeat(9) + "still here\n{'error': 'the arguments are longer than 1048576 bytes'}\n";
    assert_eq!(told(&s.run(&code).await), success(&printed, 1));
}

pub(crate) async fn calls_that_are_refused_are_counted_too(bed: &Bed) {
    let s = bed.hands().await;
    let code = r#"
import hermes_tools
answers = [hermes_tools._call("execute_code", code="print(1)")["error"] for _ in range(200)]
print(answers[0], len(set(answers[:50])), set(answers[50:]), hermes_tools.terminal("touch beyond"))
"#;
    let done = s.run(code).await;
    let output = text(&done);
    assert!(output.starts_with("a script of this session cannot call execute_code, only: "), "{output}");
    let over = "a script may call 50 tools, and this one has; do the rest in another";
    assert!(output.ends_with(&format!(" 1 {{'{over}'}} {{'error': '{over}'}}\n")), "{output}");
    assert_eq!(done.content["tool_calls_made"], 50);
    assert_eq!(s.shell("ls").await, "");
}

pub(crate) async fn a_session_without_tools_runs_a_script_that_can_call_none(bed: &Bed) {
    let mut bed = bed.clone();
    bed.tools = vec![Tool::ExecuteCode, Tool::Todo];
    let s = bed.hands().await;
    let code = r#"
import hermes_tools
print([name for name in ("terminal", "read_file", "write_file", "patch", "todo") if hasattr(hermes_tools, name)])
print([hermes_tools._call(name, command="touch got", todos=[])["error"] for name in ("terminal", "todo", "x")])
"#;
    let refused = |name| format!("'a script of this session cannot call {name}, only: '");
    let refused = ["terminal", "todo", "x"].map(refused).join(", ");
    assert_eq!(told(&s.run(code).await), success(&format!("[]\n[{refused}]\n"), 3));
    assert_eq!(s.shell("ls").await, "");
}

pub(crate) async fn what_outlives_a_call_cannot_be_asked_for(bed: &Bed) {
    let s = bed.hands().await;
    let code = r#"
import hermes_tools
for name in ("background", "pty", "notify_on_complete", "watch_patterns", "force"):
    try:
        hermes_tools.terminal("touch got", **{name: True})
    except TypeError as error:
        print("unexpected" in str(error), hermes_tools._call("terminal", command="touch got", **{name: True}))
"#;
    let names = ["background", "pty", "notify_on_complete", "watch_patterns", "force"];
    let printed =
        names.map(|name| format!("True {{'error': 'terminal takes no {name} in a script'}}\n")).concat();
    assert_eq!(told(&s.run(code).await), success(&printed, 5));
    assert_eq!(s.shell("ls").await, "");
}

pub(crate) async fn nothing_of_a_script_outlives_it(bed: &Bed) {
    let s = bed.hands().await;
    let mark = nap();
    // One that sleeps, and one that goes on calling with a connection that it has.
    let sleeper = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"));
    let calls = "import hermes_tools\nwhile True: hermes_tools.terminal('echo x >> calls')";
    let caller = "import sys".to_owned()
        + &runaway(&format!("os.execv(sys.executable, [sys.executable, '-c', {calls:?}, '{mark}'])"));
    let code = format!(
        "{sleeper}\n{caller}\nimport time\nwhile not os.path.exists('calls'): time.sleep(0.01)\nprint(1)"
    );
    let done = s.run(&code).await;
    assert_eq!((&done.content["status"], text(&done)), (&json!("success"), "1\n".to_owned()));
    assert_eq!(running(&mark), Vec::<i32>::new());
}

pub(crate) async fn at_its_deadline_a_script_and_its_calls_are_killed_and_what_it_printed_is_kept(bed: &Bed) {
    let mut bed = bed.clone();
    bed.code.timeout = Duration::from_secs(2);
    let s = bed.hands().await;
    let (mark, call) = (nap(), nap());
    let code = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"))
        + &format!("print('before')\nimport hermes_tools\nhermes_tools.terminal('sleep {call}')");
    let done = s.run(&code).await;
    let expected = json!({
        "status": "timeout",
        "output": "before\n",
        "tool_calls_made": 1,
        "error": "stopped after 2 seconds; all it started is gone",
    });
    assert_eq!((told(&done), done.succeeded), (expected, false));
    assert_eq!([running(&mark), running(&call)], [Vec::<i32>::new(), Vec::new()]);
}

pub(crate) async fn an_interrupt_ends_a_script_and_the_call_it_waits_for(bed: &Bed) {
    let s = bed.hands().await;
    let (mark, call) = (nap(), nap());
    let code = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"))
        + &format!(
            "print('before')\nimport hermes_tools\nhermes_tools.terminal('sleep {call}')\nprint('after')"
        );
    let stop = async {
        until("the call is under way", || !running(&call).is_empty() && !running(&mark).is_empty()).await;
        s.stop.cancel();
    };
    let (done, ()) = tokio::join!(s.run(&code), stop);
    assert_eq!(done.content["status"], "interrupted", "{done:?}");
    assert!(text(&done).starts_with("before\n") && !text(&done).contains("after"), "{done:?}");
    assert_eq!([running(&mark), running(&call)], [Vec::<i32>::new(), Vec::new()]);
}

pub(crate) async fn of_a_long_output_beginning_and_end_are_shown_and_errors_only_if_it_failed(bed: &Bed) {
    let s = bed.hands().await;
    let code = "import sys\nsys.stdout.write('a' * 40000 + 'b' * 60000)\nsys.stderr.write('warning')";
    let done = s.run(code).await;
    let expected = "a".repeat(20_000) + "\n[… 50000 of 100000 bytes left out …]\n" + &"b".repeat(30_000);
    assert_eq!(text(&done), expected);
    let path = done.content["full_output"].as_str().unwrap();
    assert_eq!(s.shell(&format!("wc -c < {path}")).await.trim(), "100000");
    let code = "import sys\nsys.stderr.write('e' * 1000000)\nprint('\\x1b[31mred\\x1b[0m')\nsys.exit(1)";
    let expected = "red\n--- stderr ---\n".to_owned() + &"e".repeat(10_000);
    assert_eq!(text(&s.run(code).await), expected);
}

pub(crate) async fn a_script_sees_what_was_given_and_not_what_the_session_exported(bed: &Bed) {
    let s = bed.hands().await;
    s.shell("export SECRET_OF_SESSION=1 PYTHONPATH=/evil PYTHONSTARTUP=/evil USER_PIN=1 PATH=$PATH:/added; f() { :; }; export -f f").await;
    let code = "import os\nprint(sorted(os.environ))\nprint(os.environ['GIVEN'], os.environ['PATH'].endswith(':/added'))\n\
        print(os.environ['PYTHONPATH'] == os.path.dirname(__file__))";
    let output = text(&s.run(code).await);
    let (names, rest) = output.split_once('\n').unwrap();
    let names: Vec<String> = serde_json::from_str(&names.replace('\'', "\"")).unwrap();
    let base = ["HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "TERM"];
    let ours = ["GIVEN", "HERMES_RPC_SOCKET", "HERMES_RPC_TOKEN"];
    let python = ["PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUTF8"];
    let known: Vec<&str> = [&base[..], &ours[..], &python[..]].concat();
    let unknown: Vec<&String> = names.iter().filter(|name| !known.contains(&name.as_str())).collect();
    assert_eq!((unknown, rest), (vec![], "value True\nTrue\n"));
}

pub(crate) async fn a_script_changes_nothing_in_its_session(bed: &Bed) {
    let s = bed.hands().await;
    s.shell("mkdir sub; cd sub").await;
    let before = s.shell("pwd").await;
    let code = "import os\nprint(os.getcwd())\nos.environ['LEFT'] = '1'\nos.chdir('/')";
    assert_eq!(told(&s.run(code).await), success(&format!("{before}\n"), 0));
    assert_eq!(s.shell("pwd; echo ${LEFT-nothing}").await, before + "\nnothing");
    // What a call changes is the session's, as if the model had made it.
    let code = "from hermes_tools import terminal\nterminal('cd ..; export LEFT=2')";
    assert_eq!(told(&s.run(code).await), success("", 1));
    assert_eq!(s.shell("ls; echo $LEFT").await, "sub\n2");
}

pub(crate) async fn a_strict_script_has_an_empty_directory_that_is_gone_afterwards(bed: &Bed) {
    let mut bed = bed.clone();
    bed.code.mode = CodeMode::Strict;
    let s = bed.hands().await;
    s.shell("touch mine; export VIRTUAL_ENV=/nowhere PATH=/nowhere:$PATH").await;
    let code = "import os\nprint(os.listdir('.'), 'VIRTUAL_ENV' in os.environ, 'nowhere' in os.environ['PATH'])\n\
        os.makedirs('a/b'); open('a/b/c', 'w').write('x'); os.chmod('a/b', 0); print(os.getcwd())";
    let done = s.run(code).await;
    let output = text(&done);
    let (first, directory) = output.split_once('\n').unwrap();
    assert_eq!(first, "[] False False", "{done:?}");
    assert_eq!(s.shell(&format!("ls -d {} 2>/dev/null || echo gone", directory.trim())).await, "gone");
    assert_eq!(s.shell("ls").await, "mine");
}

pub(crate) async fn without_python_nothing_runs_and_the_remedy_is_told(bed: &Bed) {
    let s = bed.hands().await;
    s.shell("export PATH=/nowhere").await;
    let done = s.run("print(1)").await;
    let error = done.content["error"].as_str().unwrap();
    let whose = match &bed.kind {
        Kind::Local => "the PATH of this machine".to_owned(),
        Kind::Sandbox => "the PATH of the sandbox".to_owned(),
        Kind::Docker { image, .. } => format!("the image {image}"),
    };
    assert!(error.contains(&whose) && error.contains("install Python 3.8 or newer"), "{error}");
    // One that is too old is passed over, or says so if there is no other.
    let old = r#"mkdir -p venv/bin
cat > venv/bin/python <<'END'
#!/bin/sh
exec /usr/bin/python3 -c 'import sys
sys.version_info = (3, 6, 9)
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"), {"__file__": sys.argv[0], "__name__": "__main__"})' "$@"
END
/bin/chmod +x venv/bin/python; export VIRTUAL_ENV=$PWD/venv PATH=/usr/bin:/bin"#;
    let old = old.replace("mkdir", "/bin/mkdir").replace("cat >", "/bin/cat >");
    s.shell(&old).await;
    assert_eq!(told(&s.run("print(1)").await), success("1\n", 0));
    s.shell("PATH=/nowhere").await;
    let done = s.run("print(1)").await;
    let error = done.content["error"].as_str().unwrap();
    assert!(error.contains("3.6") && error.contains("needs 3.8 or newer"), "{done:?}");
    // One that is not is preferred.
    s.shell("/bin/rm venv/bin/python; /bin/ln -s /usr/bin/python3 venv/bin/python; echo > venv/pyvenv.cfg")
        .await;
    let code = "import os, sys\nprint(sys.prefix == os.environ['VIRTUAL_ENV'])";
    assert_eq!(told(&s.run(code).await), success("True\n", 0));
}

pub(crate) async fn when_hermes_is_killed_nothing_of_a_script_is_left(ground: &Ground) {
    let mark = nap();
    let code = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"))
        + "open('mine', 'w')\nimport hermes_tools\nhermes_tools.terminal('sleep 1000')";
    let mut hermes = ground.another_hermes(&code);
    until("the script runs", || !running(&mark).is_empty()).await;
    hermes.kill().unwrap();
    hermes.wait().unwrap();
    until("its processes and its files are gone", || {
        running(&mark).is_empty() && ground.files_of_scripts().is_empty()
    })
    .await;
    assert_eq!(told(&ground.hands().await.run("print(1)").await)["output"], "1\n");
}

pub(crate) async fn a_module_beside_a_script_can_be_imported_and_stands_in_for_none_of_pythons(bed: &Bed) {
    let s = bed.hands().await;
    s.shell("echo 'print(\"mine\")' > of_the_project.py; echo 'print(\"evil\")' > json.py").await;
    let code = "import json, multiprocessing\ndef twice(n): return 2 * n\n\
        if __name__ == '__main__':\n    import of_the_project\n    print(json.dumps([1]))\n    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(twice, [1, 2]))";
    assert_eq!(told(&s.run(code).await), success("mine\n[1]\n[2, 4]\n", 0));
}

/// A script of which only a call is dangerous.
const CALLS_DANGER: &str = "from hermes_tools import terminal\nprint(terminal('r' + 'm -rf .git'))";

/// A session whose owner is asked, with something to lose.
async fn attended() -> (Ground, Session, PathBuf) {
    let mut ground = Ground::local();
    ground.mode = Mode::Manual;
    let precious = ground.folder.join("work/.git");
    std::fs::create_dir(&precious).unwrap();
    let session = ground.hands().await;
    (ground, session, precious)
}

#[tokio::test]
async fn what_a_script_calls_is_asked_about_as_if_the_model_had_called_it() {
    let (ground, s, precious) = attended().await;
    *s.person.says.lock().unwrap() = Some(Choice::Deny(Some("not that".to_owned())));
    let done = s.run(CALLS_DANGER).await;
    assert_eq!(*s.person.heard.lock().unwrap(), ["rm -rf .git"]);
    assert!(text(&done).starts_with("{'status': 'blocked', 'error': 'not allowed:"), "{done:?}");
    assert!(text(&done).contains("not that") && precious.exists(), "{done:?}");
    assert_eq!(done.content["tool_calls_made"], 1);
    // A yes is for that call alone.
    s.hands.begin_turn();
    *s.person.says.lock().unwrap() = Some(Choice::Once);
    let done = s.run(CALLS_DANGER).await;
    assert!(text(&done).contains("'exit_code': 0") && !precious.exists(), "{done:?}");
    assert_eq!(s.person.heard.lock().unwrap().len(), 2);
    ground.leave().await;
}

#[tokio::test]
async fn a_script_is_asked_about_as_a_whole_before_any_of_it_runs() {
    let (ground, s, precious) = attended().await;
    let code = "open('begun', 'w')\nimport subprocess\nsubprocess.run('rm -rf .git', shell=True)";
    *s.person.says.lock().unwrap() = Some(Choice::Deny(None));
    let done = s.run(code).await;
    assert_eq!((&done.content["status"], done.succeeded), (&json!("blocked"), false), "{done:?}");
    assert_eq!(*s.person.heard.lock().unwrap(), [code]);
    let untouched = || precious.exists() && !ground.folder.join("work/begun").exists();
    assert!(untouched());
    // What is interrupted while nobody has answered does not run either.
    s.hands.begin_turn();
    *s.person.says.lock().unwrap() = None;
    let stop = async {
        until("the question is put", || s.person.heard.lock().unwrap().len() == 2).await;
        s.stop.cancel();
    };
    let (done, ()) = tokio::join!(s.run(code), stop);
    assert_eq!((&done.content["status"], untouched()), (&json!("blocked"), true), "{done:?}");
    ground.leave().await;
}

#[tokio::test]
async fn a_script_that_tries_what_was_denied_again_and_again_ends_the_turn() {
    let (ground, s, precious) = attended().await;
    *s.person.says.lock().unwrap() = Some(Choice::Deny(None));
    let code = "import time\nfrom hermes_tools import terminal\nfor _ in range(20): terminal('r' + 'm -rf .git')\ntime.sleep(1000)";
    let done = s.run(code).await;
    assert_eq!((&done.content["status"], done.ends_turn), (&json!("error"), true), "{done:?}");
    assert_eq!((s.person.heard.lock().unwrap().len(), precious.exists()), (1, true));
    ground.leave().await;
}

#[tokio::test]
async fn a_script_in_a_jail_has_the_proxy_of_its_place() {
    let mut ground = Ground::sandbox();
    ground.network = Network::Proxy;
    let code = "import os\nfrom hermes_tools import terminal\nprint(os.environ['HTTPS_PROXY'], terminal('echo 1')['output'].strip())";
    assert_eq!(told(&ground.hands().await.run(code).await), success("http://127.0.0.1:13128 1\n", 1));
    ground.leave().await;
}

#[tokio::test]
async fn an_image_without_python_is_named() {
    let ground = Ground::docker("busybox");
    let done = ground.hands().await.run("print(1)").await;
    let error = done.content["error"].as_str().unwrap();
    assert!(error.contains("no python3 in the image localhost/hermes-test:busybox"), "{error}");
    ground.leave().await;
}
