//! The client against aimock, a mock server of another project, with and without injected faults.
#![expect(clippy::disallowed_methods, reason = "the mock server is a process of its own")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use hermes_model::{Api, Endpoint, FailureClass, Finish};
use hermes_testkit::peers;
use hermes_types::{CallArguments, Part};
use serde_json::json;

use crate::support::{APIS, ask, client, shown_text, user};

struct MockServer {
    child: Child,
    address: String,
    _fixtures: tempfile::TempDir,
}

impl MockServer {
    /// Starts the server if it is installed.
    fn start(chaos: &[&str]) -> Option<Self> {
        let script = peers::models()?.aimock;
        let fixtures = tempfile::tempdir().unwrap();
        let call = json!([{"name": "terminal", "arguments": "{\"command\":\"ls -l\"}"}]);
        let all = json!({"fixtures": [
            {"match": {"userMessage": "hello"}, "response": {"content": "Hi there, my friend. How are you?"}},
            {"match": {"userMessage": "list"}, "response": {"toolCalls": call}},
        ]});
        std::fs::write(fixtures.path().join("all.json"), all.to_string()).unwrap();
        let mut command = Command::new("node");
        command.arg(script).args(["-p", "0", "--strict", "-c", "5", "-f"]).arg(fixtures.path()).args(chaos);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address =
            lines.map_while(Result::ok).find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
        let address = address.unwrap().trim().to_owned();
        Some(Self { child, address, _fixtures: fixtures })
    }

    fn endpoint(&self, api: Api) -> Endpoint {
        let base = match api {
            Api::AnthropicMessages => self.address.clone(),
            Api::ChatCompletions | Api::Responses | Api::OllamaChat => format!("{}/v1", self.address),
        };
        let mut endpoint = Endpoint::new("aimock", api, base.parse().unwrap(), "m");
        endpoint.retries.max_attempts = 1;
        endpoint
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn text_and_calls_arrive_by_every_protocol() {
    let Some(mock) = MockServer::start(&[]) else { return };
    let client = client();
    for api in APIS {
        let chain = [mock.endpoint(api)];
        let (reply, events) = ask(&client, &chain, &[user("hello")]).await;
        let reply = reply.unwrap();
        assert_eq!(
            (reply.message().text().as_str(), &reply.finish),
            ("Hi there, my friend. How are you?", &Finish::Stop)
        );
        assert_eq!(shown_text(&events), reply.message().text());
        let reply = ask(&client, &chain, &[user("list")]).await.0.unwrap();
        // With Responses, encrypted reasoning precedes it.
        let Some(Part::Call(call)) = reply.parts.last() else { panic!("{reply:?}") };
        let expected = json!({"command": "ls -l"}).as_object().unwrap().clone();
        assert_eq!((call.name.as_str(), &call.arguments), ("terminal", &CallArguments::Object(expected)));
        assert_eq!(reply.finish, Finish::Calls);
    }
}

#[tokio::test]
async fn each_kind_of_chaos_has_its_failure_class() {
    let cases = [
        ("--chaos-drop", FailureClass::Server),
        ("--chaos-malformed", FailureClass::Malformed),
        ("--chaos-disconnect", FailureClass::Dropped),
        ("--chaos-ratelimit", FailureClass::RateLimit),
    ];
    for (chaos, expected) in cases {
        let Some(mock) = MockServer::start(&[chaos, "1"]) else { return };
        for api in APIS {
            let (reply, _) = ask(&client(), &[mock.endpoint(api)], &[user("hello")]).await;
            assert_eq!(reply.unwrap_err().class(), Some(expected), "{chaos} {api:?}");
        }
    }
}
