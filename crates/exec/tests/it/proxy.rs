//! The proxy of a jail without network: which connections it allows and which it refuses.

use std::time::Duration;

use hermes_exec::proxy::{self, PORT};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::test_network::{CARGO_DIR, JailedPlace, SECRET, in_test_network};

const HELLO_BODY: &str = "hello from the internet\n";

/// Builds a program with a dependency from the simulated internet.
const CARGO_PROJECT: &str = r#"mkdir -p app/src app/.cargo && cd app
echo 'fn main() { println!("{}", tiny::VALUE); }' >src/main.rs
printf '%s\n' '[package]' 'name = "app"' 'version = "0.1.0"' 'edition = "2021"' '[dependencies]' 'tiny = "1"' >Cargo.toml
printf '%s\n' '[source.crates-io]' 'replace-with = "small"' '[source.small]' \
    'registry = "sparse+http://www.example.org/crates/"' >.cargo/config.toml"#;

#[test]
fn real_programs_reach_public_hosts() {
    in_test_network("proxy::real_programs_reach_public_hosts", async |test_network| {
        let jail = test_network.jail().await;
        for (command, expected) in [
            ("curl -sS http://www.example.org/hello", HELLO_BODY),
            ("curl -sS http://1.1.1.1/hello", HELLO_BODY),
            ("curl -sS 'http://[2606:4700::1111]/hello'", HELLO_BODY),
            ("curl -sS http://six.example.org/hello", HELLO_BODY),
            ("curl -sSk https://www.example.org/hello", HELLO_BODY),
            ("curl -sSL 'http://www.example.org/redirect?to=https://www.example.org/hello' -k", HELLO_BODY),
            ("curl -sS --proxy socks5h://127.0.0.1:13128 http://www.example.org/hello", HELLO_BODY),
            (
                "curl -sSk --proxy socks5h://127.0.0.1:13128 https://six.example.org/ || echo no https there",
                "no https there\n",
            ),
            ("wget -qO- http://www.example.org/hello", HELLO_BODY),
            ("wget -qO- --no-check-certificate https://www.example.org/hello", HELLO_BODY),
            ("git clone -q http://www.example.org/repo.git one && cat one/file", "from the repository\n"),
            (
                "git -c http.sslVerify=false clone -q https://www.example.org/repo.git two && cat two/file",
                "from the repository\n",
            ),
            (
                "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://www.example.org/hello\").read())'",
                "b'hello from the internet\\n'\n",
            ),
            (
                "python3 -m pip --isolated -q download --disable-pip-version-check --dest lib \
                 --index-url http://www.example.org/simple --trusted-host www.example.org tiny-thing \
                 && PYTHONPATH=lib/tiny_thing-1.0-py3-none-any.whl \
                 python3 -c 'import tiny_thing; print(tiny_thing.value)'",
                "42\n",
            ),
            (
                "npm --silent --registry http://www.example.org/npm/ install tiny-thing >&2 \
                 && node -e 'console.log(require(\"tiny-thing\"))'",
                "42\n",
            ),
        ] {
            let said = jail.out(command).await;
            assert!(said.ends_with(expected), "{command}\n{said}");
        }
        jail.out(CARGO_PROJECT).await;
        let fetch = format!("CARGO_HOME=$HOME/cargo PATH={CARGO_DIR}/bin:$PATH cargo fetch 2>&1");
        let fetched = jail.out(&fetch).await;
        assert!(fetched.contains("Downloaded tiny v1.0.0"), "{fetched}");
        jail.sandbox.remove().await.unwrap();
    });
}

#[test]
fn large_bodies_pass_in_both_directions_over_parallel_connections() {
    in_test_network(
        "proxy::large_bodies_pass_in_both_directions_over_parallel_connections",
        async |test_network| {
            let jail = test_network.jail().await;
            jail.out("head -c 5000000 /dev/urandom >data").await;
            let expected = jail.out("echo 5000000 $(sha256sum <data | cut -d ' ' -f 1)").await;
            for upload in [
                "curl -sS --data-binary @data http://www.example.org/echo",
                "curl -sSk --data-binary @data https://www.example.org/echo",
                "curl -sS -T - http://www.example.org/echo <data",
                "curl -sS -H 'Expect: 100-continue' -T data http://www.example.org/echo",
            ] {
                assert_eq!(jail.out(upload).await, expected, "{upload}");
            }
            let direct =
                test_network.run_unconfined("curl -sS 'http://1.1.1.1/big?bytes=3000000' | sha256sum").1;
            for scheme in ["http", "https"] {
                let fetch = format!("curl -sSk '{scheme}://www.example.org/big?bytes=3000000' | sha256sum");
                assert_eq!(jail.out(&fetch).await, direct, "{scheme}");
            }
            // The connections over the limit of the proxy wait.
            let many =
                "for i in $(seq 150); do curl -sS http://www.example.org/hello & done | sort | uniq -c; wait";
            assert_eq!(jail.out(many).await.trim(), format!("150 {}", HELLO_BODY.trim()));
            // The request reveals neither the connection nor the proxy to the server.
            let head = jail
                .out("curl -sS -A x -H 'Proxy-Authorization: Basic eA==' http://www.example.org/head")
                .await;
            assert_eq!(
                head,
                "GET /head HTTP/1.1\nHost: www.example.org\nUser-Agent: x\nAccept: */*\nConnection: close\n\n"
            );
            jail.sandbox.remove().await.unwrap();
        },
    );
}

#[test]
fn nothing_bypasses_the_proxy() {
    in_test_network("proxy::nothing_bypasses_the_proxy", async |test_network| {
        let jail = test_network.jail().await;
        for url in ["http://1.1.1.1/hello", "http://10.66.0.1/hello", "http://9.9.9.1/hello"] {
            let command = format!("curl -sS --noproxy '*' --max-time 20 {url}");
            assert_eq!(test_network.run_unconfined(&command).0, 0, "the control of {url}");
            let (code, said) = jail.run(&command).await;
            assert_eq!(code, 7, "{url}: {said}");
        }
        assert_eq!(test_network.intrusions(), 1);
        // Only the proxy listens on the loopback interface of the jail.
        let own = jail.run("curl -sS --noproxy '*' http://127.0.0.1/hello").await;
        assert_eq!(own.0, 7, "{own:?}");
        jail.sandbox.remove().await.unwrap();
    });
}

/// Internal hosts, each with a spelling that ordinary programs accept for it.
const INTERNAL_HOSTS: &[(&str, &str)] = &[
    ("127.0.0.1", "127.0.0.1"),
    ("127.0.0.1.", "127.0.0.1"),
    ("127.1", "127.1"),
    ("2130706433", "2130706433"),
    ("0x7f000001", "0x7f000001"),
    ("0x7f.1", "0x7f.1"),
    ("0177.0.0.1", "0177.0.0.1"),
    ("%31%32%37.0.0.1", "%31%32%37.0.0.1"),
    ("１２７.０.０.１", "127.0.0.1"),
    ("0.0.0.0", "0.0.0.0"),
    ("0", "0"),
    ("[::1]", "[::1]"),
    ("[::]", "[::]"),
    ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
    ("[::ffff:7f00:1]", "[::ffff:7f00:1]"),
    ("[0:0:0:0:0:ffff:7f00:0001]", "[0:0:0:0:0:ffff:7f00:0001]"),
    ("localhost", "localhost"),
    ("LocalHost.", "localhost"),
    ("10.66.0.1", "10.66.0.1"),
    ("0xa.66.1", "0xa.66.1"),
    ("[::ffff:10.66.0.1]", "[::ffff:10.66.0.1]"),
    ("169.254.169.254", "169.254.169.254"),
    ("0xa9fea9fe", "0xa9fea9fe"),
    ("[::ffff:a9fe:a9fe]", "[::ffff:a9fe:a9fe]"),
    ("9.9.9.1", "9.9.9.1"),
    ("0x9.9.9.1", "0x9.9.9.1"),
    ("[2606:4700:9::1]", "[2606:4700:9::1]"),
    ("[::ffff:9.9.9.1]", "[::ffff:9.9.9.1]"),
    ("intranet", "intranet"),
    ("inside.example.org", "inside.example.org"),
    ("alias.example.org", "alias.example.org"),
    ("mapped.example.org", "mapped.example.org"),
    ("private.example.org", "private.example.org"),
    ("meta.example.org", "meta.example.org"),
    ("mine.example.org", "mine.example.org"),
];

/// The bytes of a SOCKS request for a name, for `printf %b`.
fn socks(name: &str) -> String {
    let name: String = name.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\\x05\\x01\\x00\\x05\\x01\\x00\\x03\\x{:02x}{name}\\x00\\x50", name.len() / 4)
}

/// Sends raw bytes to the proxy from inside and returns the response.
async fn send_raw(jail: &JailedPlace, bytes: &str) -> String {
    let command = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{PORT}; printf %b '{bytes}' >&3; cat <&3 | od -An -v -c | tr -d ' \\n'"
    );
    jail.out(&command).await
}

#[test]
fn no_spelling_reaches_an_internal_host() {
    in_test_network("proxy::no_spelling_reaches_an_internal_host", async |test_network| {
        let jail = test_network.jail().await;
        for (host, plain) in INTERNAL_HOSTS {
            let control =
                test_network.run_unconfined(&format!("curl -gsS --noproxy '*' 'http://{plain}/hello'"));
            assert!(control.1.contains(SECRET), "the control of {host}: {control:?}");
        }
        test_network.intrusions();
        for (host, _) in INTERNAL_HOSTS {
            let requests = [
                format!("GET http://{host}/hello HTTP/1.1\\r\\nHost: www.example.org\\r\\n\\r\\n"),
                format!("CONNECT {host}:80 HTTP/1.1\\r\\n\\r\\n"),
            ];
            for request in requests {
                let said = send_raw(&jail, &request).await;
                assert!(said.starts_with("HTTP/1.1403Refusedbyhermes:"), "{request}\n{said}");
            }
            let said = send_raw(&jail, &socks(host)).await;
            assert!(said.starts_with("005\\0005002\\0"), "{host}: {said}");
        }
        // Control: each form of request works for a public host.
        let said = send_raw(&jail, "GET http://www.example.org/hello HTTP/1.1\\r\\n\\r\\n").await;
        assert!(said.ends_with("hellofromtheinternet\\n"), "{said}");
        let request = "GET /hello HTTP/1.1\\r\\nConnection: close\\r\\n\\r\\n";
        for tunnel in [socks("www.example.org"), "CONNECT 1.1.1.1:80 HTTP/1.1\\r\\n\\r\\n".to_owned()] {
            let said = send_raw(&jail, &format!("{tunnel}{request}")).await;
            assert!(said.ends_with("hellofromtheinternet\\n"), "{said}");
        }
        assert_eq!(test_network.intrusions(), 0);
        jail.sandbox.remove().await.unwrap();
    });
}

#[test]
fn a_host_name_with_a_nul_is_refused() {
    in_test_network("proxy::a_host_name_with_a_nul_is_refused", async |test_network| {
        let jail = test_network.jail().await;
        // Control: a program that stops reading at the NUL resolves this name.
        let resolved = test_network.run_unconfined("getent ahostsv4 inside.example.org");
        assert!(resolved.1.contains("127.0.0.1"), "{resolved:?}");
        for name in
            ["inside.example.org\0.www.example.org", "www.example.org\0.inside.example.org", "127.0.0.1\0"]
        {
            let said = send_raw(&jail, &socks(name)).await;
            assert!(said.starts_with("005\\0005002\\0"), "{name:?}: {said}");
            let name = name.replace('\0', "\\x00");
            let said = send_raw(&jail, &format!("CONNECT {name}:80 HTTP/1.1\\r\\n\\r\\n")).await;
            assert!(said.starts_with("HTTP/1.1400"), "{name:?}: {said}");
        }
        assert_eq!(test_network.intrusions(), 0);
        jail.sandbox.remove().await.unwrap();
    });
}

#[test]
fn a_rebinding_name_reaches_only_the_checked_address() {
    in_test_network("proxy::a_rebinding_name_reaches_only_the_checked_address", async |test_network| {
        let jail = test_network.jail().await;
        let fetch = "curl -sS --max-time 20 http://rebind.example.org/hello";
        assert_eq!(jail.out(fetch).await, HELLO_BODY);
        let next = jail.out(fetch).await;
        assert!(next.contains("is not a public address (loopback)"), "{next}");
        assert_eq!(test_network.intrusions(), 0);
        // Control: a client that resolves the name a second time gets an internal address.
        let control = test_network.run_unconfined(&format!("{fetch} --noproxy '*'"));
        assert!(control.1.contains(SECRET), "{control:?}");
        assert_eq!(test_network.intrusions(), 1);
        let last = test_network.run_unconfined("getent ahosts mixedlast.example.org").1;
        assert!(last.starts_with("1.1.1.1 ") && last.contains("192.168.66.1"), "{last}");
        for mixed in ["mixed.example.org", "mixed6.example.org", "mixedlast.example.org"] {
            let resolved = test_network.run_unconfined(&format!("getent ahosts {mixed}")).1;
            assert!(resolved.contains("1.1.1.1") && resolved.lines().count() > 3, "{resolved}");
            for _ in 0..4 {
                let said = jail.out(&format!("curl -sS --max-time 20 http://{mixed}/hello")).await;
                assert!(said.contains("is not a public address"), "{said}");
            }
        }
        assert_eq!(test_network.intrusions(), 0);
        jail.sandbox.remove().await.unwrap();
    });
}

#[test]
fn a_redirect_to_an_internal_host_is_refused() {
    in_test_network("proxy::a_redirect_to_an_internal_host_is_refused", async |test_network| {
        let jail = test_network.jail().await;
        let targets = [
            "http://127.0.0.1/hello", "http://mine.example.org/hello", "http://10.66.0.1/hello",
            "http://2130706433/hello",
        ];
        for target in targets {
            let fetch = format!("curl -sSL --max-time 20 'http://www.example.org/redirect?to={target}'");
            let control = test_network.run_unconfined(&format!("{fetch} --noproxy '*'"));
            assert!(control.1.contains(SECRET), "{control:?}");
            test_network.intrusions();
            let said = jail.out(&format!("{fetch} --noproxy ''")).await;
            assert!(said.starts_with("hermes: ") && said.contains("reaches public hosts only"), "{said}");
            assert_eq!(test_network.intrusions(), 0);
        }
        jail.sandbox.remove().await.unwrap();
    });
}

#[test]
fn a_failed_connection_gets_a_clear_error() {
    in_test_network("proxy::a_failed_connection_gets_a_clear_error", async |test_network| {
        let jail = test_network.jail().await;
        let status = "curl -s -o /dev/null -w '%{http_code} %{http_connect} %{exitcode}'";
        for (rest, expected) in [
            ("http://nowhere.example.org/", "502 000 0"),
            ("http://1.1.1.1:81/", "502 000 0"),
            ("https://nowhere.example.org/", "000 502 56"),
            ("https://10.66.0.1/", "000 403 56"),
            ("--socks5-hostname 127.0.0.1:13128 http://nowhere.example.org/", "000 000 97"),
        ] {
            let said = jail.run(&format!("{status} {rest}")).await.1;
            assert_eq!(said, expected, "{rest}");
        }
        jail.sandbox.remove().await.unwrap();
    });
}

#[test]
fn any_attached_process_serves_the_proxy() {
    in_test_network("proxy::any_attached_process_serves_the_proxy", async |test_network| {
        let (first, second) = (test_network.jail().await, test_network.jail().await);
        for _ in 0..10 {
            assert_eq!(second.out("curl -sS http://www.example.org/hello").await, HELLO_BODY);
        }
        drop(first);
        let served =
            async { while second.run("curl -sS http://www.example.org/hello").await.1 != HELLO_BODY {} };
        tokio::time::timeout(Duration::from_secs(20), served).await.expect("no process serves");
        second.sandbox.remove().await.unwrap();
    });
}

/// Requests to internal hosts and mutations of them.
fn mutated_requests() -> impl Strategy<Value = Vec<u8>> {
    let hosts: Vec<&str> =
        INTERNAL_HOSTS.iter().map(|(host, _)| *host).filter(|host| !host.contains("example")).collect();
    let request = (prop::sample::select(hosts), 0..3_u8).prop_map(|(host, kind)| match kind {
        0 => format!("GET http://{host}/hello HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes(),
        1 => format!("CONNECT {host}:80 HTTP/1.1\r\n\r\n").into_bytes(),
        _ => {
            let length = u8::try_from(host.len()).unwrap_or(u8::MAX);
            [&[5, 1, 0, 5, 1, 0, 3, length], host.as_bytes(), &[0, 80]].concat()
        }
    });
    let odd = prop::sample::select(b"\0\t\n\r #%./:@[\\]\x7f\xc2\xff".to_vec());
    let edits = prop::collection::vec((any::<prop::sample::Index>(), odd), 0..4);
    (request, edits).prop_map(|(mut request, edits)| {
        for (place, byte) in edits {
            let place = place.index(request.len());
            if byte % 2 == 0 { request.insert(place, byte) } else { request[place] = byte }
        }
        request
    })
}

#[test]
fn no_request_reaches_an_internal_host() {
    in_test_network("proxy::no_request_reaches_an_internal_host", async |test_network| {
        let mut runner = TestRunner::deterministic();
        let mut answered = 0;
        for _ in 0..3000 {
            let request = mutated_requests().new_tree(&mut runner).unwrap().current();
            let (mut client, inner) = tokio::io::duplex(64 * 1024);
            let served = tokio::spawn(proxy::serve_connection(inner));
            client.write_all(&request).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = Vec::new();
            let read = tokio::time::timeout(Duration::from_secs(60), client.read_to_end(&mut answer)).await;
            read.expect("the proxy hangs").unwrap();
            assert!(!String::from_utf8_lossy(&answer).contains(SECRET), "{request:?}");
            answered += usize::from(!answer.is_empty());
            served.await.unwrap();
        }
        assert_eq!(test_network.intrusions(), 0);
        assert!(answered > 1000, "{answered} requests were understood");
    });
}
