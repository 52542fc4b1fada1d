//! The commands found in scripts: every construct, wrapper and spelling.

use hermes_policy::shell::{DoubtKind, Surroundings, understand};

fn around() -> Surroundings<'static> {
    Surroundings::new("/home/ada/work", "/home/ada", "/home/ada/.hermes")
}

/// The innermost commands, as shown.
fn commands(script: &str) -> Vec<String> {
    understand(script, &around()).segments.iter().map(hermes_policy::shell::Segment::show).collect()
}

#[test]
fn every_branch_is_found() {
    for script in [
        "a; x",
        "a && x",
        "a || x",
        "a & x",
        "a | x",
        "a |& x",
        "(x)",
        "{ x; }",
        "! x",
        "time -p x",
        "if x; then a; fi",
        "if a; then x; fi",
        "if a; then b; elif x; then c; fi",
        "if a; then b; else x; fi",
        "while x; do a; done",
        "until a; do x; done",
        "for i in 1 2; do x; done",
        "for ((i=0; i<3; i++)); do x; done",
        "for i; do x; done",
        "for a_name_that_is_quite_long in 1 2\ndo x; done",
        "coproc A_NAME_THAT_IS_QUITE_LONG { x; }",
        "select i in a b; do x; done",
        "case a in b) c;; d|e) x;; esac",
        "case a in (b) x ;& c) d ;;& esac",
        "f() { x; }",
        "function f { x; }",
        "f() ( x )",
        "coproc x",
        "coproc N { x; }",
        "[[ -n $(x) ]]",
        "(( a = $(x) ))",
        "echo $(x)",
        "echo \"$(x)\"",
        "echo `x`",
        "echo \"`x`\"",
        "echo $(a $(b \"$(x)\"))",
        "echo ${v:-$(x)}",
        "echo \"${v:=`x`}\"",
        "echo ${v[$(x)]}",
        "echo ${v/$(x)/b}",
        "echo $(( 1 + $(x) ))",
        "echo $[ $(x) ]",
        "v=$(x)",
        "v=$(x) a",
        "v[$(x)]=1",
        "v=(a $(x))",
        "export v=$(x)",
        "a < <(x)",
        "a > >(x)",
        "a <(x)",
        "a > \"$(x)\"",
        "a <<E\n$(x)\nE",
        "a <<-E\n\t`x`\n\tE",
        "a <<E; x\nbody\nE",
        "a <<'E'\n$(b\nE\nx",
        "a <<< \"$(x)\"",
        "echo ${ x; }",
        "a\n# comment\nx",
        "a # comment ; b\nx",
        "a \\\n; x",
    ] {
        assert!(commands(script).iter().any(|command| command == "x"), "{script:?}: {:?}", commands(script));
    }
}

#[test]
fn commands_behind_wrappers_are_found() {
    for script in [
        "sudo x y",
        "sudo -u root -g wheel -- x y",
        "sudo A=b x y",
        "doas -u root x y",
        "su -c 'x y'",
        "su root -c 'x y'",
        "env x y",
        "env -i -u C A=b x y",
        "env -S 'x y'",
        "nohup x y",
        "nice -n 5 x y",
        "ionice -c 2 -n 7 x y",
        "timeout -k 5 -s KILL 10 x y",
        "/usr/bin/time -f %e x y",
        "stdbuf -oL x y",
        "setsid x y",
        "chroot /mnt x y",
        "unshare -r x y",
        "nsenter -t 1 -m x y",
        "command x y",
        "builtin x y",
        "exec -a z x y",
        "bash -c 'x y'",
        "bash -lic 'x y'",
        "bash -o pipefail -c 'x y'",
        "sh -c 'x \"$1\"' _ y",
        "dash -c 'x y'",
        "bash <<< 'x y'",
        "bash <<E\nx y\nE",
        "cat <<E | sh\nx y\nE",
        "echo 'x y' | bash",
        "echo eCB5 | base64 -d | bash",
        "printf 'x %s' y | sh",
        "bash <(echo x y)",
        "source /dev/stdin <<< 'x y'",
        "echo x y > f; bash f",
        "cat > f.sh <<E\nx y\nE\n./f.sh",
        "eval 'x y'",
        "eval x y",
        "trap 'x y' EXIT",
        "alias z='x y'",
        "alias z=x; z y",
        "PROMPT_COMMAND='x y'",
        "GIT_SSH_COMMAND='x y' git fetch",
        "echo y | xargs x",
        "echo y | xargs -I{} x {}",
        "find . -exec x y \\;",
        "find . -execdir x y +",
        "find . -ok x y \\;",
        "watch -n 1 x y",
        "parallel x ::: y",
        "ssh -p 22 host x y",
        "ssh host 'x y'",
        "docker exec -it c x y",
        "docker run --rm -v a:b -e C=d image x y",
        "docker compose exec -T web x y",
        "podman run --entrypoint x image y",
        "kubectl exec -n ns pod -- x y",
        "python3 -c 'import os; os.system(\"x y\")'",
        "python3 -Bc 'import subprocess; subprocess.run([\"x\", \"y\"])'",
        "python3 - <<E\nimport os\nos.system('x y')\nE",
        "perl -e 'system(\"x y\")'",
        "perl -ne '`x y`'",
        "ruby -e 'system \"x\", \"y\"'",
        "node -e 'require(\"child_process\").execSync(\"x y\")'",
        "php -r 'system(\"x y\");'",
        "awk 'BEGIN { system(\"x y\") }'",
        "awk '{ print | \"x y\" }'",
        "sed '1e x y' f",
        "tar cf a --to-command='x y' b",
        "tar cf a --checkpoint-action=exec='x y' b",
        "rsync -e 'x y' a b",
        "git -c alias.z='!x y' z",
        "git -c core.pager='x y' log",
        "git bisect run x y",
        "git submodule foreach 'x y'",
        "git rebase -x 'x y' main",
        "make SHELL='x y'",
        "vim -c ':!x y' f",
        "systemd-run --user x y",
        "busybox x y",
        "/lib64/ld-linux-x86-64.so.2 x y",
        "flock /tmp/lock x y",
        "script -c 'x y' log",
        "tmux new-session -d 'x y'",
        "npx -c 'x y'",
        "uv run x y",
        "sudo nohup env A=b timeout 5 bash -c 'exec x y'",
    ] {
        let found = commands(script);
        assert!(
            found.iter().any(|command| command == "x y" || command == "A=b x y"),
            "{script:?}: {found:?}"
        );
    }
}

#[test]
fn words_are_expanded_as_bash_does() {
    for (script, expected) in [
        ("x 'a b' \"c d\" e\\ f", "x 'a b' 'c d' 'e f'"),
        ("x $'\\x61\\142\\u0063\\n'", "x 'abc\n'"),
        ("x {a,b}{1..3}", "x a1 a2 a3 b1 b2 b3"),
        ("x ~ ~/y ~root \"~\"", "x /home/ada /home/ada/y /root ~"),
        ("v='a b'; x $v \"$v\"", "x a b 'a b'"),
        ("v=a; v+=b; x ${v}c", "x abc"),
        ("IFS=,; v=a,b; x $v", "x a b"),
        ("x${IFS}a", "x a"),
        ("v=x; $v a", "x a"),
        ("x ${unset:-d} ${v:=e}", "x d e"),
        ("cd /tmp; x $PWD $OLDPWD", "x /tmp /home/ada/work"),
        ("set -- a b; x \"$1\" \"$2\"", "x a b"),
        ("f() { x \"$1\"; }; f a", "x a"),
        ("for i in a; do x $i; done", "x a"),
        ("x $(echo a) `printf b`", "x a b"),
        ("x * [a]", "x * [a]"),
        ("x $unknown", "x ${unknown}"),
    ] {
        assert!(commands(script).contains(&expected.to_owned()), "{script:?}: {:?}", commands(script));
    }
}

#[test]
fn unknown_parts_are_doubts() {
    let doubts = |script: &str| -> Vec<DoubtKind> {
        understand(script, &around()).doubts.into_iter().map(|doubt| doubt.kind).collect()
    };
    assert_eq!(doubts("$x a"), [DoubtKind::Program]);
    assert_eq!(doubts("/bin/l? a"), [DoubtKind::Program]);
    assert_eq!(doubts("eval \"$x\""), [DoubtKind::Script(Vec::new()), DoubtKind::Program]);
    assert_eq!(doubts("curl u | sh"), [DoubtKind::Script(vec!["curl".to_owned()])]);
    assert_eq!(doubts("bash"), [DoubtKind::Interactive]);
    assert_eq!(doubts("curl -o f u; sh f"), [DoubtKind::MadeHere]);
    assert_eq!(doubts("sh /tmp/f"), [DoubtKind::Temporary]);
    assert_eq!(doubts("python3 -c \"$x\""), [DoubtKind::Code]);
    assert_eq!(doubts("ls \u{202e}"), [DoubtKind::Hidden]);
    assert_eq!(doubts("l\u{455} a"), [DoubtKind::Lookalike]);
    assert_eq!(doubts("echo 'a"), [DoubtKind::Syntax]);
    assert_eq!(doubts("if a; then b"), [DoubtKind::Syntax]);
    assert_eq!(doubts(&"(".repeat(100)), [DoubtKind::TooDeep]);
    assert_eq!(doubts(&"a;".repeat(5_000)), [DoubtKind::TooMuch]);
    assert_eq!(doubts("ls -la | grep x > out.txt"), []);
}
