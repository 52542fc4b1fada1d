//! `hermes pairing`: who of the people of chats is let in.

use std::process::ExitCode;
use std::time::Duration;

use hermes_gateway::Platform;
use hermes_store::{ApprovalResult, PairedUser, PendingUser, Store};
use hermes_types::Timestamp;
use serde_json::json;

use crate::Context;
use crate::args::PairingAction;
use crate::screen::{OutputFormat, Tone, format_age, one_line};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::resolve::store::{find, store_failure};

pub(crate) fn run(action: PairingAction, context: &Context) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = find(context).await?;
        let done = run_action(action, context, store.as_ref()).await;
        if let Some(store) = store {
            store.close().await;
        }
        done.map(|()| ExitCode::SUCCESS)
    })
}

/// Without a database nobody waits and nobody was let in.
async fn run_action(action: PairingAction, context: &Context, store: Option<&Store>) -> Result<(), Failure> {
    match action {
        PairingAction::Ls => list(context, store).await,
        PairingAction::Approve { platform, code } => approve(context, store, platform, &code).await,
        PairingAction::Revoke { platform, user } => revoke(context, store, platform, &user).await,
        PairingAction::ClearPending { platform } => clear(context, store, platform).await,
    }
}

async fn list(context: &Context, store: Option<&Store>) -> Result<(), Failure> {
    let (pending, paired) = match store {
        Some(store) => (
            store.pending_users(Timestamp::now()).await.map_err(store_failure)?,
            store.paired_users().await.map_err(store_failure)?,
        ),
        None => (Vec::new(), Vec::new()),
    };
    if context.screen.format == OutputFormat::Json {
        return context.screen.json(&json!({"pending": pending, "paired": paired}));
    }
    if pending.is_empty() && paired.is_empty() {
        context.screen.print_stderr("no pending requests and no approved users");
        return Ok(());
    }
    let waits = |one: &PendingUser| {
        let state = format!("waits, {} left", format_age(time_left(one.expires)));
        vec![one.platform.clone(), one_line(&one.user, 40), state, one_line(&one.name, 60)]
    };
    let is_in = |one: &PairedUser| {
        let since = Duration::from_secs(Timestamp::now().seconds().saturating_sub(one.approved.seconds()));
        vec![
            one.platform.clone(),
            one_line(&one.user, 40),
            format!("in for {}", format_age(since)),
            one_line(&one.name, 60),
        ]
    };
    let rows: Vec<_> = pending.iter().map(waits).chain(paired.iter().map(is_in)).collect();
    context.screen.table(&["PLATFORM", "USER", "STATE", "NAME"], &rows)
}

async fn approve(
    context: &Context,
    store: Option<&Store>,
    platform: Platform,
    code: &str,
) -> Result<(), Failure> {
    let word = platform.as_str();
    let nobody = || {
        Failure::new(FailureKind::Failed, format!("no pending request on {word} has this code"))
            .hint("`hermes pairing ls` lists who waits; a code ends after an hour, and writing to the bot gives a new one")
    };
    let Some(store) = store else { return Err(nobody()) };
    match store.approve_code(word, code, Timestamp::now()).await.map_err(store_failure)? {
        ApprovalResult::Approved(paired) if context.screen.format == OutputFormat::Json => {
            context.screen.json(&json!(paired))
        }
        ApprovalResult::Approved(paired) => {
            let name = one_line(&format!("{} ({})", paired.name, paired.user), 120);
            let is_in = context.screen.paint(Tone::Good, "approved:");
            context.screen.line(&format!("{is_in} {name} on {word}"))
        }
        ApprovalResult::WrongCode { left: 1 } => {
            Err(nobody().hint(format!("one more wrong code, and nothing is approved on {word} for an hour")))
        }
        ApprovalResult::WrongCode { .. } => Err(nobody()),
        ApprovalResult::Locked { until } => Err(Failure::new(
            FailureKind::Refused,
            format!(
                "too many wrong codes: nothing is approved on {word} for another {}",
                format_age(time_left(until))
            ),
        )
        .hint("those who wait can write to the bot again after that")),
    }
}

async fn revoke(
    context: &Context,
    store: Option<&Store>,
    platform: Platform,
    user: &str,
) -> Result<(), Failure> {
    let word = platform.as_str();
    // As `platform:id`, people are named elsewhere.
    let user = user.strip_prefix(word).and_then(|rest| rest.strip_prefix(':')).unwrap_or(user);
    let was_in = match store {
        Some(store) => store.revoke_pairing(word, user).await.map_err(store_failure)?,
        None => false,
    };
    if !was_in {
        let message = format!("`{}` has no access on {word}", one_line(user, 60));
        return Err(Failure::new(FailureKind::Failed, message).hint(
            "`hermes pairing ls` lists who was; those on an allow list are named in the configuration",
        ));
    }
    match context.screen.format {
        OutputFormat::Json => context.screen.json(&json!({"platform": word, "user": user, "revoked": true})),
        OutputFormat::Text => {
            context.screen.line(&format!("revoked access of {} on {word}", one_line(user, 60)))
        }
    }
}

async fn clear(context: &Context, store: Option<&Store>, platform: Option<Platform>) -> Result<(), Failure> {
    let cleared = match store {
        Some(store) => store
            .clear_pending(platform.map(Platform::as_str), Timestamp::now())
            .await
            .map_err(store_failure)?,
        None => 0,
    };
    match (context.screen.format, cleared) {
        (OutputFormat::Json, _) => context.screen.json(&json!({"cleared": cleared})),
        (OutputFormat::Text, 0) => {
            context.screen.print_stderr("no pending requests");
            Ok(())
        }
        (OutputFormat::Text, 1) => context.screen.line("forgot one who waited"),
        (OutputFormat::Text, _) => context.screen.line(&format!("forgot {cleared} who waited")),
    }
}

fn time_left(until: Timestamp) -> Duration {
    Duration::from_secs(until.seconds().saturating_sub(Timestamp::now().seconds()))
}
