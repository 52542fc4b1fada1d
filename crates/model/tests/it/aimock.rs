//! Our client against a mock server that others made, well and badly behaved.
#![expect(clippy::disallowed_methods, reason = "the mock server is a process of its own")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use hermes_model::{Api, Class, Client, Endpoint, Finish};
use hermes_testkit::peers;
use hermes_types::{Arguments, Part};
use serde_json::json;

use crate::support::{APIS, ask, shown, user};

struct Mock {
    child: Child,
    address: String,
    _fixtures: tempfile::TempDir,
}

impl Mock {
    /// Starts it, unless it is not installed.
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
        let told =
            lines.map_while(Result::ok).find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
        let address = told.unwrap().trim().to_owned();
        Some(Self { child, address, _fixtures: fixtures })
    }

    fn endpoint(&self, api: Api) -> Endpoint {
        let base = match api {
            Api::AnthropicMessages => self.address.clone(),
            Api::ChatCompletions | Api::Responses => format!("{}/v1", self.address),
        };
        let mut endpoint = Endpoint::new("aimock", api, base.parse().unwrap(), "m");
        endpoint.retries.attempts = 1;
        endpoint
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn words_and_calls_come_through_by_every_protocol() {
    let Some(mock) = Mock::start(&[]) else { return };
    let client = Client::default();
    for api in APIS {
        let chain = [mock.endpoint(api)];
        let (reply, events) = ask(&client, &chain, &[user("hello")]).await;
        let reply = reply.unwrap();
        assert_eq!(
            (reply.message().text().as_str(), &reply.finish),
            ("Hi there, my friend. How are you?", &Finish::Stop)
        );
        assert_eq!(shown(&events), reply.message().text());
        let reply = ask(&client, &chain, &[user("list")]).await.0.unwrap();
        // Responses has sealed thoughts before it.
        let Some(Part::Call(call)) = reply.parts.last() else { panic!("{reply:?}") };
        let expected = json!({"command": "ls -l"}).as_object().unwrap().clone();
        assert_eq!((call.name.as_str(), &call.arguments), ("terminal", &Arguments::Object(expected)));
        assert_eq!(reply.finish, Finish::Calls);
    }
}

#[tokio::test]
async fn each_kind_of_chaos_is_known_for_what_it_is() {
    let cases = [
        ("--chaos-drop", Class::Server),
        ("--chaos-malformed", Class::Malformed),
        ("--chaos-disconnect", Class::Dropped),
        ("--chaos-ratelimit", Class::RateLimit),
    ];
    for (chaos, expected) in cases {
        let Some(mock) = Mock::start(&[chaos, "1"]) else { return };
        for api in APIS {
            let (reply, _) = ask(&Client::default(), &[mock.endpoint(api)], &[user("hello")]).await;
            assert_eq!(reply.unwrap_err().class(), Some(expected), "{chaos} {api:?}");
        }
    }
}
