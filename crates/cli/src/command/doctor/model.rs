//! Checks that a model is configured and, with `--live`, that it answers.

use std::time::Duration;

use hermes_model::{Effort, ImageMode, Prompt};
use hermes_types::Message;
use tokio::time::{Instant, timeout};

use super::DoctorFinding;
use crate::approval::Consent;
use crate::{Config, Context, Result, block_on};
use hermes_config::resolve::model::{self, Models};

const NAME: &str = "model";
/// A local model may have to be loaded first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(context: &Context, config: &Config, live: Option<Consent>) -> Result<DoctorFinding> {
    let models = match model::models(context, config, None) {
        Ok(models) => models,
        Err(failure) => {
            return Ok(DoctorFinding::warning(NAME, failure.message).remedy(failure.hints.join(" ")));
        }
    };
    match live {
        None => Ok(DoctorFinding::ok(NAME, describe(&models))),
        Some(_) => block_on(async { Ok(ask(context, &models).await) }),
    }
}

fn describe(models: &Models) -> String {
    let Some(first) = models.chain.first() else { return "none".to_owned() };
    let key = models.key_source.as_ref().map_or("no key".to_owned(), |source| format!("key from {source}"));
    format!("{}, served by {} at {}, {key}", first.model, first.provider, first.base_url)
}

/// Asks the first model for one word. The answer of a fallback would hide a problem.
async fn ask(context: &Context, models: &Models) -> DoctorFinding {
    let chain: Vec<_> = models.chain.iter().take(1).cloned().collect();
    let messages = [Message::user("Answer with the word: ok")];
    let prompt = Prompt {
        system: "",
        tools: &[],
        messages: &messages,
        max_output: Some(16),
        effort: models.effort.filter(|effort| *effort == Effort::None),
        session: "doctor",
        image_mode: ImageMode::Text,
    };
    let start = Instant::now();
    let client = model::client(context);
    let window = async {
        match chain.first() {
            Some(endpoint) => client.context_window(endpoint).await,
            None => None,
        }
    };
    let mut ignore_events = |_| {};
    let answer = timeout(ANSWER_TIMEOUT, client.complete(&chain, &prompt, &mut ignore_events));
    let (answer, window) = tokio::join!(answer, window);
    match answer {
        Ok(Ok(_)) => {
            let window = window.map_or("unknown".to_owned(), |tokens| format!("{tokens} tokens"));
            let millis = start.elapsed().as_millis();
            let model = describe(models);
            DoctorFinding::ok(NAME, format!("{model}; answered in {millis} ms; context window: {window}"))
        }
        Ok(Err(error)) => {
            let failure = model::model_failure(&error);
            let remedy = match failure.hints.as_slice() {
                [] => "See the provider's status page.".to_owned(),
                hints => hints.join(" "),
            };
            DoctorFinding::broken(NAME, failure.message).remedy(remedy)
        }
        Err(_) => DoctorFinding::broken(NAME, "it did not answer within a minute")
            .remedy("Check whether the server is busy or the model is too large."),
    }
}
