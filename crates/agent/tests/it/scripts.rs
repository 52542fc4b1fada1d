//! Scripts that call tools. Most tests prove what a script and its processes cannot do.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hermes_agent::{CodeMode, Tool, ToolResult};
use hermes_policy::ApprovalMode;
use hermes_types::{Choice, Network};
use serde_json::{Value, json};

use crate::env::{BackendKind, TestEnv, TestSession};
use crate::fixture::{Fixture, eventually, running};

/// The protocol of the module, for scripts that use it directly.
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

/// A sleep time that no other process has in its command line.
fn nap() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 1_000_000 + std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Starts a process that leaves its parents, their session and their pipes.
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

fn text(result: &ToolResult) -> String {
    result.content["output"].as_str().unwrap().to_owned()
}

/// The result without its duration.
fn content(result: &ToolResult) -> Value {
    let mut answer = result.content.clone();
    assert!(answer.as_object_mut().unwrap().remove("duration_seconds").unwrap().as_f64().unwrap() >= 0.0);
    answer
}

fn success(output: &str, calls: u32) -> Value {
    json!({"status": "success", "output": output, "tool_calls_made": calls})
}

pub(crate) async fn output_and_call_results_of_a_script_are_returned(fixture: &Fixture) {
    let s = fixture.session().await;
    let result = s.run("print('ä', 1 + 1)").await;
    assert_eq!((content(&result), result.succeeded), (success("ä 2\n", 0), true));
    let code = r#"
from hermes_tools import terminal
answer = terminal("echo $((6 * 7)); exit 3")
print(sorted(answer), answer["exit_code"], answer["output"].strip())
print(terminal("pwd", workdir="/")["output"].strip(), terminal("sleep 100", timeout=1)["exit_code"])
"#;
    let result = s.run(code).await;
    assert_eq!(content(&result), success("['error', 'exit_code', 'output'] 3 42\n/ 124\n", 3));
    let long = format!("text = {:?}\nprint(len(text))", "x".repeat(200_000));
    assert_eq!(content(&s.run(&long).await), success("200000\n", 0));
}

pub(crate) async fn every_function_does_what_its_tool_does(fixture: &Fixture) {
    let s = fixture.session().await;
    let code = r#"
from hermes_tools import patch, read_file, search_files, terminal, web_fetch, write_file
print(write_file("a.txt", "one\ntwo\n").get("error"))
print(patch("a.txt", "two", "three").get("error"), "three" in read_file("a.txt", 2, 1)["content"])
print(search_files("thr.e", path=".")["total_count"], terminal("cat a.txt")["output"].split())
print("error" in read_file("missing"), "error" in web_fetch("http://169.254.169.254/latest"))
print(sorted(search_files("*.txt", "files")["files"]))
"#;
    let result = s.run(code).await;
    let printed = "None\nNone True\n1 ['one', 'three']\nTrue True\n";
    assert!(text(&result).starts_with(printed) && text(&result).contains("a.txt"), "{result:?}");
    assert_eq!(result.content["tool_calls_made"], 8);
    // Files that threads write in parallel are whole; writes of the same file wait for each other.
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
    assert_eq!(content(&s.run(code).await), success("[1, 1, 1, 1]\n", 20));
}

pub(crate) async fn errors_of_a_script_are_reported(fixture: &Fixture) {
    let s = fixture.session().await;
    for (code, error) in [(" \n", "`code` is empty"), (&*"#".repeat((1 << 20) + 1), "1048577 bytes")] {
        let result = s.run(code).await;
        assert!(result.content["error"].as_str().unwrap().contains(error) && !result.succeeded, "{result:?}");
    }
    let result = s.run("print('before')\nx = (\n").await;
    assert!(result.content["error"].as_str().unwrap().starts_with("SyntaxError"), "{result:?}");
    assert!(!text(&result).contains("before") && text(&result).contains("script.py"), "{result:?}");
    let result = s.run("def f():\n    raise ValueError('of mine')\nprint('before')\nf()").await;
    let output = text(&result);
    assert_eq!(
        (&result.content["status"], &result.content["error"], result.succeeded),
        (&json!("error"), &json!("ValueError: of mine"), false)
    );
    assert!(output.starts_with("before\n--- stderr ---\nTraceback"), "{output}");
    assert!(output.contains("raise ValueError('of mine')") && !output.contains("start.py"), "{output}");
    let result = s.run("import sys; sys.exit(7)").await;
    assert_eq!(result.content["error"], "the script ended with code 7", "{result:?}");
    let result = s.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").await;
    assert_eq!(result.content["error"], "the script ended with code 137", "{result:?}");
}

pub(crate) async fn results_are_never_mixed_up_between_threads_and_processes(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.code.max_tool_calls = 2000;
    let s = env.session().await;
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
        content(&s.run(code).await),
        success("[0, 0, 0, 0, 0, 0]\n[] 0\n", 20 * 50 + 3 * 50 + 1 + 100 + 6)
    );
}

pub(crate) async fn a_script_can_use_the_helper_functions(fixture: &Fixture) {
    let s = fixture.session().await;
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
    assert_eq!(content(&s.run(code).await), success(printed, 1));
}

pub(crate) async fn a_connection_without_the_token_of_the_run_gets_nothing(fixture: &Fixture) {
    let s = fixture.session().await;
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
    assert_eq!(content(&s.run(&code).await), success(&printed, 1));
    // The token of one run is not that of another.
    let old = s.run("import os; open('old', 'w').write(os.environ['HERMES_RPC_TOKEN'])").await;
    assert_eq!(content(&old), success("", 0));
    let code = RAW.to_owned()
        + "\none = link()\none.sendall(hello(open('old').read()))\nprint(rest(one)[4:].decode())";
    let printed = "{\"error\":\"the token does not belong to this run\"}\n";
    assert_eq!(content(&s.run(&code).await), success(printed, 0));
    s.shell("rm old").await;
}

pub(crate) async fn an_invalid_message_ends_only_its_connection(fixture: &Fixture) {
    let s = fixture.session().await;
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
# Silent or incomplete connections do not block others.
silent = [link() for _ in range(20)]
for one in silent:
    one.sendall(hello() + b"\x00\x08\x00\x00" if one.fileno() % 2 else b"\x00")
print(hermes_tools.terminal("echo still here")["output"].strip())
print(hermes_tools._call("terminal", command="echo " + "x" * 2000000))
"#;
    let printed =
        "True\n".repeat(9) + "still here\n{'error': 'the arguments are longer than 1048576 bytes'}\n";
    assert_eq!(content(&s.run(&code).await), success(&printed, 1));
}

pub(crate) async fn refused_calls_count_too(fixture: &Fixture) {
    let s = fixture.session().await;
    let code = r#"
import hermes_tools
answers = [hermes_tools._call("execute_code", code="print(1)")["error"] for _ in range(200)]
print(answers[0], len(set(answers[:50])), set(answers[50:]), hermes_tools.terminal("touch beyond"))
"#;
    let result = s.run(code).await;
    let output = text(&result);
    assert!(output.starts_with("a script of this session cannot call execute_code; available: "), "{output}");
    let over = "a script may make 50 tool calls; do the rest in another script";
    assert!(output.ends_with(&format!(" 1 {{'{over}'}} {{'error': '{over}'}}\n")), "{output}");
    assert_eq!(result.content["tool_calls_made"], 50);
    assert_eq!(s.shell("ls").await, "");
}

pub(crate) async fn a_script_of_a_session_without_tools_can_call_none(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.tools = vec![Tool::ExecuteCode, Tool::Todo];
    let s = env.session().await;
    let code = r#"
import hermes_tools
print([name for name in ("terminal", "read_file", "write_file", "patch", "todo") if hasattr(hermes_tools, name)])
print([hermes_tools._call(name, command="touch got", todos=[])["error"] for name in ("terminal", "todo", "x")])
"#;
    let refused = |name| format!("'a script of this session cannot call {name}; available: '");
    let refused = ["terminal", "todo", "x"].map(refused).join(", ");
    assert_eq!(content(&s.run(code).await), success(&format!("[]\n[{refused}]\n"), 3));
    assert_eq!(s.shell("ls").await, "");
}

pub(crate) async fn parameters_that_outlive_a_call_are_rejected(fixture: &Fixture) {
    let s = fixture.session().await;
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
    assert_eq!(content(&s.run(code).await), success(&printed, 5));
    assert_eq!(s.shell("ls").await, "");
}

pub(crate) async fn nothing_of_a_script_outlives_it(fixture: &Fixture) {
    let s = fixture.session().await;
    let mark = nap();
    // One process sleeps, the other keeps calling on an open connection.
    let sleeper = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"));
    let calls = "import hermes_tools\nwhile True: hermes_tools.terminal('echo x >> calls')";
    let caller = "import sys".to_owned()
        + &runaway(&format!("os.execv(sys.executable, [sys.executable, '-c', {calls:?}, '{mark}'])"));
    let code = format!(
        "{sleeper}\n{caller}\nimport time\nwhile not os.path.exists('calls'): time.sleep(0.01)\nprint(1)"
    );
    let result = s.run(&code).await;
    assert_eq!((&result.content["status"], text(&result)), (&json!("success"), "1\n".to_owned()));
    assert_eq!(running(&mark), Vec::<i32>::new());
}

pub(crate) async fn a_timeout_kills_a_script_and_its_calls_and_keeps_its_output(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.code.timeout = Duration::from_secs(2);
    let s = env.session().await;
    let (mark, call) = (nap(), nap());
    let code = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"))
        + &format!("print('before')\nimport hermes_tools\nhermes_tools.terminal('sleep {call}')");
    let result = s.run(&code).await;
    let expected = json!({
        "status": "timeout",
        "output": "before\n",
        "tool_calls_made": 1,
        "error": "stopped after 2 seconds; everything it started was ended",
    });
    assert_eq!((content(&result), result.succeeded), (expected, false));
    assert_eq!([running(&mark), running(&call)], [Vec::<i32>::new(), Vec::new()]);
}

pub(crate) async fn an_interrupt_ends_a_script_and_its_running_call(fixture: &Fixture) {
    let s = fixture.session().await;
    let (mark, call) = (nap(), nap());
    let code = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"))
        + &format!(
            "print('before')\nimport hermes_tools\nhermes_tools.terminal('sleep {call}')\nprint('after')"
        );
    let stop = async {
        eventually("the call runs", async || !running(&call).is_empty() && !running(&mark).is_empty()).await;
        s.stop.cancel();
    };
    let (result, ()) = tokio::join!(s.run(&code), stop);
    assert_eq!(result.content["status"], "interrupted", "{result:?}");
    assert!(text(&result).starts_with("before\n") && !text(&result).contains("after"), "{result:?}");
    assert_eq!([running(&mark), running(&call)], [Vec::<i32>::new(), Vec::new()]);
}

pub(crate) async fn a_long_output_is_shortened_and_stderr_is_shown_only_on_failure(fixture: &Fixture) {
    let s = fixture.session().await;
    let code = "import sys\nsys.stdout.write('a' * 40000 + 'b' * 60000)\nsys.stderr.write('warning')";
    let result = s.run(code).await;
    let expected = "a".repeat(20_000) + "\n[… 50000 of 100000 bytes left out …]\n" + &"b".repeat(30_000);
    assert_eq!(text(&result), expected);
    let path = result.content["full_output"].as_str().unwrap();
    assert_eq!(s.shell(&format!("wc -c < {path}")).await.trim(), "100000");
    let code = "import sys\nsys.stderr.write('e' * 1000000)\nprint('\\x1b[31mred\\x1b[0m')\nsys.exit(1)";
    let expected = "red\n--- stderr ---\n".to_owned() + &"e".repeat(10_000);
    assert_eq!(text(&s.run(code).await), expected);
}

pub(crate) async fn a_script_gets_configured_variables_and_not_exported_ones(fixture: &Fixture) {
    let s = fixture.session().await;
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

pub(crate) async fn a_script_changes_nothing_in_its_session(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("mkdir sub; cd sub").await;
    let before = s.shell("pwd").await;
    let code = "import os\nprint(os.getcwd())\nos.environ['LEFT'] = '1'\nos.chdir('/')";
    assert_eq!(content(&s.run(code).await), success(&format!("{before}\n"), 0));
    assert_eq!(s.shell("pwd; echo ${LEFT-nothing}").await, before + "\nnothing");
    // A call changes the session as if the model had made it.
    let code = "from hermes_tools import terminal\nterminal('cd ..; export LEFT=2')";
    assert_eq!(content(&s.run(code).await), success("", 1));
    assert_eq!(s.shell("ls; echo $LEFT").await, "sub\n2");
}

pub(crate) async fn a_strict_script_has_an_empty_directory_that_is_removed(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.code.mode = CodeMode::Strict;
    let s = env.session().await;
    s.shell("touch mine; export VIRTUAL_ENV=/nowhere PATH=/nowhere:$PATH").await;
    let code = "import os\nprint(os.listdir('.'), 'VIRTUAL_ENV' in os.environ, 'nowhere' in os.environ['PATH'])\n\
        os.makedirs('a/b'); open('a/b/c', 'w').write('x'); os.chmod('a/b', 0); print(os.getcwd())";
    let result = s.run(code).await;
    let output = text(&result);
    let (first, directory) = output.split_once('\n').unwrap();
    assert_eq!(first, "[] False False", "{result:?}");
    assert_eq!(s.shell(&format!("ls -d {} 2>/dev/null || echo gone", directory.trim())).await, "gone");
    assert_eq!(s.shell("ls").await, "mine");
}

pub(crate) async fn without_python_nothing_runs_and_the_error_gives_advice(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("export PATH=/nowhere").await;
    let result = s.run("print(1)").await;
    let error = result.content["error"].as_str().unwrap();
    let place = match &fixture.kind {
        BackendKind::Local => "the PATH of this machine".to_owned(),
        BackendKind::Sandbox => "the PATH of the sandbox".to_owned(),
        BackendKind::Docker { image, .. } => format!("the image {image}"),
    };
    assert!(error.contains(&place) && error.contains("install Python 3.8 or newer"), "{error}");
    // An interpreter that is too old is skipped, or reported if there is no other.
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
    assert_eq!(content(&s.run("print(1)").await), success("1\n", 0));
    s.shell("PATH=/nowhere").await;
    let result = s.run("print(1)").await;
    let error = result.content["error"].as_str().unwrap();
    assert!(error.contains("3.6") && error.contains("needs 3.8 or newer"), "{result:?}");
    // A recent interpreter of the virtual environment is preferred.
    s.shell("/bin/rm venv/bin/python; /bin/ln -s /usr/bin/python3 venv/bin/python; echo > venv/pyvenv.cfg")
        .await;
    let code = "import os, sys\nprint(sys.prefix == os.environ['VIRTUAL_ENV'])";
    assert_eq!(content(&s.run(code).await), success("True\n", 0));
}

pub(crate) async fn a_killed_hermes_leaves_nothing_of_a_script(fixture: &Fixture) {
    let mark = nap();
    let code = runaway(&format!("os.execvp('sleep', ['sleep', '{mark}'])"))
        + "open('mine', 'w')\nimport hermes_tools\nhermes_tools.terminal('sleep 1000')";
    let mut hermes = fixture.spawn_hermes(&code);
    eventually("the script runs", async || !running(&mark).is_empty()).await;
    hermes.kill().unwrap();
    hermes.wait().unwrap();
    eventually("its processes and its files are gone", async || {
        running(&mark).is_empty() && fixture.script_files().is_empty()
    })
    .await;
    assert_eq!(content(&fixture.session().await.run("print(1)").await)["output"], "1\n");
}

pub(crate) async fn a_project_module_can_be_imported_and_shadows_none_of_python(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("echo 'print(\"mine\")' > of_the_project.py; echo 'print(\"evil\")' > json.py").await;
    let code = "import json, multiprocessing\ndef twice(n): return 2 * n\n\
        if __name__ == '__main__':\n    import of_the_project\n    print(json.dumps([1]))\n    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(twice, [1, 2]))";
    assert_eq!(content(&s.run(code).await), success("mine\n[1]\n[2, 4]\n", 0));
}

/// A script in which only a tool call is dangerous.
const CALLS_DANGER: &str = "from hermes_tools import terminal\nprint(terminal('r' + 'm -rf .git'))";

/// A session with an approver and a directory to protect.
async fn attended_session() -> (Fixture, TestSession, PathBuf) {
    let mut fixture = Fixture::local();
    fixture.mode = ApprovalMode::Manual;
    let precious = fixture.work().join(".git");
    std::fs::create_dir(&precious).unwrap();
    let session = fixture.session().await;
    (fixture, session, precious)
}

#[tokio::test]
async fn a_call_of_a_script_is_asked_about_like_one_of_the_model() {
    let (fixture, s, precious) = attended_session().await;
    s.approver.answer_with(Choice::Deny { reason: Some("not that".to_owned()) });
    let result = s.run(CALLS_DANGER).await;
    assert_eq!(s.approver.questions(), ["rm -rf .git"]);
    assert!(text(&result).starts_with("{'status': 'blocked', 'error': 'not allowed:"), "{result:?}");
    assert!(text(&result).contains("not that") && precious.exists(), "{result:?}");
    assert_eq!(result.content["tool_calls_made"], 1);
    // An approval holds for one call.
    s.context.approvals().begin_turn();
    s.approver.answer_with(Choice::Once);
    let result = s.run(CALLS_DANGER).await;
    assert!(text(&result).contains("'exit_code': 0") && !precious.exists(), "{result:?}");
    assert_eq!(s.approver.questions().len(), 2);
    fixture.remove().await;
}

#[tokio::test]
async fn a_script_is_judged_as_a_whole_before_it_runs() {
    let (fixture, s, precious) = attended_session().await;
    let code = "open('begun', 'w')\nimport subprocess\nsubprocess.run('rm -rf .git', shell=True)";
    s.approver.answer_with(Choice::Deny { reason: None });
    let result = s.run(code).await;
    assert_eq!((&result.content["status"], result.succeeded), (&json!("blocked"), false), "{result:?}");
    assert_eq!(s.approver.questions(), [code]);
    let untouched = || precious.exists() && !fixture.work().join("begun").exists();
    assert!(untouched());
    // An interrupted question does not run the script either.
    s.context.approvals().begin_turn();
    s.approver.stop_answering();
    let stop = async {
        eventually("the question is asked", async || s.approver.questions().len() == 2).await;
        s.stop.cancel();
    };
    let (result, ()) = tokio::join!(s.run(code), stop);
    assert_eq!((&result.content["status"], untouched()), (&json!("blocked"), true), "{result:?}");
    fixture.remove().await;
}

#[tokio::test]
async fn a_script_that_repeats_a_denied_action_ends_the_turn() {
    let (fixture, s, precious) = attended_session().await;
    s.approver.answer_with(Choice::Deny { reason: None });
    let code = "import time\nfrom hermes_tools import terminal\nfor _ in range(20): terminal('r' + 'm -rf .git')\ntime.sleep(1000)";
    let result = s.run(code).await;
    assert_eq!((&result.content["status"], result.ends_turn), (&json!("error"), true), "{result:?}");
    assert_eq!((s.approver.questions().len(), precious.exists()), (1, true));
    fixture.remove().await;
}

#[tokio::test]
async fn a_script_in_a_sandbox_gets_its_proxy() {
    let mut fixture = Fixture::sandbox();
    fixture.network = Network::Proxy;
    let code = "import os\nfrom hermes_tools import terminal\nprint(os.environ['HTTPS_PROXY'], terminal('echo 1')['output'].strip())";
    assert_eq!(content(&fixture.session().await.run(code).await), success("http://127.0.0.1:13128 1\n", 1));
    fixture.remove().await;
}

#[tokio::test]
async fn an_image_without_python_is_named_in_the_error() {
    let fixture = Fixture::docker("busybox");
    let result = fixture.session().await.run("print(1)").await;
    let error = result.content["error"].as_str().unwrap();
    assert!(error.contains("no python3 in the image localhost/hermes-test:busybox"), "{error}");
    fixture.remove().await;
}
