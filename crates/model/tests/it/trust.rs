//! Servers that cannot be trusted.

use hermes_model::{Api, Class, Client};
use hermes_testkit::tls::{Authority, Front, Manner};
use hermes_testkit::{ScriptedModel, Step};

use crate::support::{ask, endpoint, user};

#[tokio::test]
async fn who_cannot_be_trusted_is_asked_once_and_hears_nothing() {
    let model = ScriptedModel::start([Step::text("ok")]).unwrap();
    let front = Front::open(model.address(), &Authority::new().unwrap(), "model.invalid").unwrap();
    let mut there = endpoint(&model, Api::ChatCompletions);
    there.base_url = format!("https://{}/v1", front.address()).parse().unwrap();
    let cases = [
        (Manner::Honest, Class::Untrusted, "SSL_CERT_FILE"),
        (Manner::OtherName, Class::Untrusted, "its certificate is "),
        (Manner::Plain, Class::Unreachable, "does not speak TLS"),
    ];
    for (manner, class, words) in cases {
        front.behave(manner);
        let before = *front.taken().borrow();
        let (reply, _) = ask(&Client::default(), std::slice::from_ref(&there), &[user("hi")]).await;
        let error = reply.unwrap_err();
        assert_eq!(error.class(), Some(class), "{error}");
        assert!(error.to_string().contains(words) && !error.to_string().contains("sk-test"), "{error}");
        let tries = if class == Class::Untrusted { 1 } else { 3 };
        assert_eq!(*front.taken().borrow() - before, tries, "{manner:?}");
    }
    // Another one is asked instead.
    front.behave(Manner::Honest);
    let chain = [there, endpoint(&model, Api::ChatCompletions)];
    let (reply, _) = ask(&Client::default(), &chain, &[user("hi")]).await;
    assert!(reply.is_ok(), "{reply:?}");
    assert_eq!(model.received().len(), 1);
}
