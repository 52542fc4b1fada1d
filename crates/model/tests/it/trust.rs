//! Servers that cannot be trusted.

use hermes_model::{Api, Class, Client};
use hermes_testkit::tls::{CertificateAuthority, TlsBehavior, TlsFront};
use hermes_testkit::{ScriptStep, ScriptedModel};

use crate::support::{ask, endpoint, user};

#[tokio::test]
async fn who_cannot_be_trusted_is_asked_once_and_hears_nothing() {
    let model = ScriptedModel::start([ScriptStep::text("ok")]).unwrap();
    let front =
        TlsFront::start(model.address(), &CertificateAuthority::new().unwrap(), "model.invalid").unwrap();
    let mut there = endpoint(&model, Api::ChatCompletions);
    there.base_url = format!("https://{}/v1", front.address()).parse().unwrap();
    let cases = [
        (TlsBehavior::Valid, Class::Untrusted, "SSL_CERT_FILE"),
        (TlsBehavior::WrongName, Class::Untrusted, "its certificate is "),
        (TlsBehavior::NoTls, Class::Unreachable, "does not speak TLS"),
    ];
    for (manner, class, words) in cases {
        front.set_behavior(manner);
        let before = *front.accepted().borrow();
        let (reply, _) = ask(&Client::default(), std::slice::from_ref(&there), &[user("hi")]).await;
        let error = reply.unwrap_err();
        assert_eq!(error.class(), Some(class), "{error}");
        assert!(error.to_string().contains(words) && !error.to_string().contains("sk-test"), "{error}");
        let tries = if class == Class::Untrusted { 1 } else { 3 };
        assert_eq!(*front.accepted().borrow() - before, tries, "{manner:?}");
    }
    // Another one is asked instead.
    front.set_behavior(TlsBehavior::Valid);
    let chain = [there, endpoint(&model, Api::ChatCompletions)];
    let (reply, _) = ask(&Client::default(), &chain, &[user("hi")]).await;
    assert!(reply.is_ok(), "{reply:?}");
    assert_eq!(model.received().len(), 1);
}
