//! `hermes pairing`: manages who may use the bot.

use hermes_gateway::Platform;
use hermes_store::{ApprovalResult, PairedUser, PendingUser, Store};
use hermes_types::Timestamp;
use serde_json::json;

use crate::args::PairingAction;
use crate::screen::{Tone, format_since, format_until, one_line};
use crate::{Context, block_on};
use hermes_config::failure::Failure;
use hermes_config::resolve::store::find;

pub(crate) fn run(action: PairingAction, context: &Context) -> Result<(), Failure> {
    block_on(async {
        // Without a database there are no requests and no users.
        let store = find(context).await?;
        let result = match action {
            PairingAction::Ls => list(context, store.as_ref()).await,
            PairingAction::Approve { platform, code } => {
                approve(context, store.as_ref(), platform, &code).await
            }
            PairingAction::Revoke { platform, user } => {
                revoke(context, store.as_ref(), platform, &user).await
            }
            PairingAction::ClearPending { platform } => {
                clear_pending(context, store.as_ref(), platform).await
            }
        };
        if let Some(store) = store {
            store.close().await;
        }
        result
    })
}

async fn list(context: &Context, store: Option<&Store>) -> Result<(), Failure> {
    let (pending, paired) = match store {
        Some(store) => (store.pending_users(Timestamp::now()).await?, store.paired_users().await?),
        None => (Vec::new(), Vec::new()),
    };
    let row = |platform: &str, user: &str, state: String, name: &str| {
        vec![platform.to_owned(), one_line(user, 40), state, one_line(name, 60)]
    };
    let pending_row = |user: &PendingUser| {
        let state = format!("pending, {} left", format_until(user.expires));
        row(&user.platform, &user.user, state, &user.name)
    };
    let paired_row = |user: &PairedUser| {
        let state = format!("approved {} ago", format_since(user.approved));
        row(&user.platform, &user.user, state, &user.name)
    };
    context.screen.list(
        &json!({"pending": pending, "paired": paired}),
        "no pending requests and no approved users",
        &["PLATFORM", "USER", "STATE", "NAME"],
        &pending.iter().map(pending_row).chain(paired.iter().map(paired_row)).collect::<Vec<_>>(),
    )
}

async fn approve(
    context: &Context,
    store: Option<&Store>,
    platform: Platform,
    code: &str,
) -> Result<(), Failure> {
    let platform = platform.as_str();
    let unknown_code = || {
        Failure::failed(format!("no pending request on {platform} has this code")).hint(
            "Run `hermes pairing ls` to list requests. A code expires after an hour; a message to the bot creates a new one.",
        )
    };
    let store = store.ok_or_else(unknown_code)?;
    match store.approve_code(platform, code, Timestamp::now()).await? {
        ApprovalResult::Approved(user) if context.screen.is_json() => context.screen.json(&json!(user)),
        ApprovalResult::Approved(user) => {
            let name = one_line(&format!("{} ({})", user.name, user.user), 120);
            let approved = context.screen.paint(Tone::Good, "approved:");
            context.screen.line(&format!("{approved} {name} on {platform}"))
        }
        ApprovalResult::WrongCode { left: 1 } => {
            Err(unknown_code()
                .hint(format!("One more wrong code blocks approvals on {platform} for an hour.")))
        }
        ApprovalResult::WrongCode { .. } => Err(unknown_code()),
        ApprovalResult::Locked { until } => Err(Failure::refused(format!(
            "too many wrong codes: approvals on {platform} are blocked for another {}",
            format_until(until)
        ))
        .hint("Ask the users to write to the bot again after that.")),
    }
}

async fn revoke(
    context: &Context,
    store: Option<&Store>,
    platform: Platform,
    user: &str,
) -> Result<(), Failure> {
    let platform = platform.as_str();
    // Elsewhere users are named `platform:id`.
    let user = user.strip_prefix(platform).and_then(|rest| rest.strip_prefix(':')).unwrap_or(user);
    let is_revoked = match store {
        Some(store) => store.revoke_pairing(platform, user).await?,
        None => false,
    };
    if !is_revoked {
        return Err(Failure::failed(format!("`{}` has no access on {platform}", one_line(user, 60))).hint(
            "Run `hermes pairing ls` to list approved users. Users of an allow list are in the configuration.",
        ));
    }
    if context.screen.is_json() {
        return context.screen.json(&json!({"platform": platform, "user": user, "revoked": true}));
    }
    context.screen.line(&format!("revoked access of {} on {platform}", one_line(user, 60)))
}

async fn clear_pending(
    context: &Context,
    store: Option<&Store>,
    platform: Option<Platform>,
) -> Result<(), Failure> {
    let cleared = match store {
        Some(store) => store.clear_pending(platform.map(Platform::as_str), Timestamp::now()).await?,
        None => 0,
    };
    match cleared {
        _ if context.screen.is_json() => context.screen.json(&json!({"cleared": cleared})),
        1 => context.screen.line("cleared 1 pending request"),
        _ => context.screen.line(&format!("cleared {cleared} pending requests")),
    }
}
