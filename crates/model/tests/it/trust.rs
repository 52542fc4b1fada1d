//! Servers with certificates that are not trusted.

use hermes_model::{Api, FailureClass};
use hermes_testkit::tls::{CertificateAuthority, TlsBehavior, TlsFront};
use hermes_testkit::{ScriptStep, ScriptedModel};

use crate::support::{ask, client, endpoint, user};

#[tokio::test]
async fn an_untrusted_server_is_asked_once_and_gets_no_request() {
    let model = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
    let front =
        TlsFront::start(model.address(), &CertificateAuthority::new().unwrap(), "model.invalid").unwrap();
    let mut behind_tls = endpoint(&model, Api::ChatCompletions);
    behind_tls.base_url = format!("https://{}/v1", front.address()).parse().unwrap();
    let cases = [
        (TlsBehavior::Valid, FailureClass::Untrusted, "SSL_CERT_FILE"),
        (TlsBehavior::WrongName, FailureClass::Untrusted, "certificate "),
        (TlsBehavior::NoTls, FailureClass::Unreachable, "does not speak TLS"),
    ];
    for (behavior, class, text) in cases {
        front.set_behavior(behavior);
        let before = *front.accepted().borrow();
        let (reply, _) = ask(&client(), std::slice::from_ref(&behind_tls), &[user("hi")]).await;
        let error = reply.unwrap_err();
        assert_eq!(error.class(), Some(class), "{error}");
        assert!(error.to_string().contains(text) && !error.to_string().contains("sk-test"), "{error}");
        // The question for the kind of server comes before the three attempts.
        let tries = if class == FailureClass::Untrusted { 1 } else { 4 };
        assert_eq!(*front.accepted().borrow() - before, tries, "{behavior:?}");
    }
    // The fallback is asked instead.
    front.set_behavior(TlsBehavior::Valid);
    let chain = [behind_tls, endpoint(&model, Api::ChatCompletions)];
    let (reply, _) = ask(&client(), &chain, &[user("hi")]).await;
    assert!(reply.is_ok(), "{reply:?}");
    assert_eq!(model.received().len(), 1);
}
