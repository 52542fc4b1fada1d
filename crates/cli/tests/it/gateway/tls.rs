//! TLS to the platform and its errors.

use std::fs;
use std::sync::Arc;

use hermes_testkit::model::{BodyDelivery, ScriptedReply};
use hermes_testkit::tls::{CertificateAuthority, TlsBehavior, TlsFront};
use hermes_testkit::{ReplyItem, ScriptStep};
use serde_json::Value;

use crate::gateway::env::{GatewayEnv, eventually};

/// The variable with a file of trusted certificates.
const CERT_FILE_VAR: &str = "SSL_CERT_FILE";

/// Puts TLS in front of the platform, with an authority that is not trusted yet.
fn start_tls_front(env: &GatewayEnv) -> (TlsFront, Arc<CertificateAuthority>) {
    let authority = CertificateAuthority::new().unwrap();
    let front = TlsFront::start(env.server.address(), &authority, "discord.invalid").unwrap();
    env.server.set_base(&format!("https://{}", front.address()));
    fs::write(env.path("ca.pem"), authority.pem()).unwrap();
    (front, authority)
}

/// Makes the gateway trust the authority.
fn trust_authority(env: GatewayEnv) -> GatewayEnv {
    let file = env.path("ca.pem").display().to_string();
    env.set_env(CERT_FILE_VAR, file)
}

/// Asserts that the token is in no log.
fn assert_token_not_logged(env: &GatewayEnv) {
    let token = env.server.token();
    let log = fs::read_to_string(env.path("home/logs/agent.log")).unwrap();
    assert!(!env.log().contains(token) && !log.contains(token), "{}\n{log}", env.log());
}

#[tokio::test]
async fn a_configured_certificate_is_trusted_and_everything_is_encrypted() {
    let env = GatewayEnv::echo().await;
    let (front, authority) = start_tls_front(&env);
    let model = TlsFront::start(env.model.address(), &authority, "model.invalid").unwrap();
    env.configure("model.base_url", &format!("https://{}/v1", model.address()));
    let mut env = trust_authority(env).open().await;
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["echo: hello"]);
    for behavior in [TlsBehavior::Valid, TlsBehavior::NoCloseNotify] {
        front.set_behavior(behavior);
        front.drop_connections();
        env.send(env.ann, dm, &format!("{behavior:?}"));
    }
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: hello", "echo: Valid", "echo: NoCloseNotify"]);
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    assert!(
        env.server.read(|world| world.connections) <= *front.accepted().borrow(),
        "a connection was not encrypted"
    );
    assert!(*model.accepted().borrow() > 0, "the model request was not encrypted");
    assert_token_not_logged(&env);
    env.close().await;
}

#[tokio::test]
async fn an_untrusted_certificate_is_reported_with_a_hint() {
    let mut env = GatewayEnv::echo().await;
    let (front, _authority) = start_tls_front(&env);
    let dm = env.server.dm_channel(env.ann);
    env.launch();
    eventually("the channel is down", || env.state() == "down");
    let status = env.run(&["gateway", "status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    let message = "certificate signed by an unknown authority";
    for text in [&status, &env.log()] {
        assert!(text.contains(message) && text.contains(CERT_FILE_VAR), "{text}");
    }
    front.set_behavior(TlsBehavior::Expired);
    eventually("the expired certificate is logged", || env.log().contains("certificate has expired"));
    assert_eq!(env.server.read(|world| (world.connections, world.identified)), (0, 0));
    env.send(env.ann, dm, "hello");
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    front.set_behavior(TlsBehavior::Valid);
    let env = trust_authority(env).open().await;
    env.send(env.ann, dm, "and now?");
    env.wait_for_message(dm, "an answer", |seen| seen.text == "echo: and now?").await;
    assert_token_not_logged(&env);
    env.close().await;
}

#[tokio::test]
async fn a_missing_certificate_file_is_named() {
    let env = GatewayEnv::echo().await;
    let _front = start_tls_front(&env);
    fs::remove_file(env.path("ca.pem")).unwrap();
    let env = trust_authority(env);
    let run = env.run(&["--json", "gateway", "run"]);
    assert_eq!(run.status.code(), Some(5));
    let error: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(error.to_string().contains("ca.pem") && error.to_string().contains(CERT_FILE_VAR), "{error}");
    env.close().await;
}

#[tokio::test]
async fn a_stalled_handshake_blocks_nothing() {
    let endless = ScriptStep::Reply(ScriptedReply {
        items: vec![ReplyItem::Text("first".to_owned())],
        delivery: BodyDelivery { pause_ms: 600_000, ..Default::default() },
        ..Default::default()
    });
    let env = GatewayEnv::then_echo([endless]).await;
    let (front, _authority) = start_tls_front(&env);
    // Gateway connections bypass TLS, so users can still send messages.
    let open = format!("ws://{}", env.server.address());
    let mut env = trust_authority(env).set_env("DISCORD_GATEWAY_URL", open).open().await;
    let dm = env.server.dm_channel(env.ann);
    front.set_behavior(TlsBehavior::Silent);
    front.drop_connections();
    env.send(env.ann, dm, "begin");
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.send(env.ann, dm, "/stop");
    env.send(env.ann, dm, "hello");
    eventually("the model is asked again", || env.model_requests().len() == 2);
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    assert_eq!(env.replies(dm), Vec::<String>::new());
    front.set_behavior(TlsBehavior::Valid);
    env.start().await;
    env.wait_for_message(dm, "the answer", |seen| seen.text == "echo: begin\n\nhello").await;
    env.send(env.ann, dm, "once");
    env.wait_for_message(dm, "the last answer", |seen| seen.text == "echo: once").await;
    let mut replies = env.replies(dm);
    replies.sort();
    assert_eq!(replies, ["Stopped.", "echo: begin\n\nhello", "echo: once", "interrupted"]);
    // A handshake that stalls at startup does not block the shutdown.
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    front.set_behavior(TlsBehavior::Silent);
    let before = *front.accepted().borrow();
    let mut env = env.set_env("DISCORD_GATEWAY_URL", format!("wss://{}", front.address()));
    env.launch();
    eventually("the gateway connects", || *front.accepted().borrow() > before);
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    assert_token_not_logged(&env);
    env.close().await;
}
