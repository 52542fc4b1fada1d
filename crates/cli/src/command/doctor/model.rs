//! Whether there is a model to talk to; with `--live`, whether it answers.

use std::time::Duration;

use hermes_model::{Effort, ImageMode, Prompt};
use hermes_types::Message;
use tokio::time::{Instant, timeout};

use super::{DoctorFinding, DoctorMode, FindingState};
use crate::Context;
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve::model::{self, Models};

const NAME: &str = "model";
/// How long a model may take to say one word. One that has to be loaded takes its time.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(context: &Context, config: &Config, depth: DoctorMode) -> Result<DoctorFinding, Failure> {
    let models = match model::models(context, config, None) {
        Ok(models) => models,
        Err(failure) => {
            let remedy = failure.hints.join("; ");
            return Ok(DoctorFinding::bad(NAME, FindingState::Warning, failure.message, remedy));
        }
    };
    match depth {
        DoctorMode::Offline => Ok(DoctorFinding::ok(NAME, described(&models))),
        DoctorMode::Live(_) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok(runtime.block_on(ask(context, &models)))
        }
    }
}

fn described(models: &Models) -> String {
    let Some(first) = models.chain.first() else { return "none".to_owned() };
    let key = match &models.key_source {
        Some(from) => format!("key from {from}"),
        None => "no key".to_owned(),
    };
    format!("{}, served by {} at {}, {key}", first.model, first.provider, first.base_url)
}

/// Asks the first model for one word. A fallback that answers in its place would hide what is broken.
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
    let begun = Instant::now();
    let client = model::client(context);
    let window = async {
        match chain.first() {
            Some(endpoint) => client.context_window(endpoint).await.tokens,
            None => None,
        }
    };
    let mut unheard = |_| {};
    let answer = timeout(PATIENCE, client.complete(&chain, &prompt, &mut unheard));
    let (answer, window) = tokio::join!(answer, window);
    match answer {
        Ok(Ok(_)) => {
            let window =
                window.map_or_else(|| "of unknown length".to_owned(), |tokens| format!("of {tokens} tokens"));
            let took = begun.elapsed().as_millis();
            DoctorFinding::ok(
                NAME,
                format!("{}; it answered in {took} ms, and its window is {window}", described(models)),
            )
        }
        Ok(Err(error)) => {
            let failure = model::model_failure(&error);
            let remedy = match failure.hints.is_empty() {
                true => "see the provider's status page".to_owned(),
                false => failure.hints.join("; "),
            };
            DoctorFinding::bad(NAME, FindingState::Broken, failure.message, remedy)
        }
        Err(_) => DoctorFinding::bad(
            NAME,
            FindingState::Broken,
            "it did not answer within a minute",
            "is the server busy, or the model too large?",
        ),
    }
}
