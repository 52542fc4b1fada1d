//! `hermes pairing`: manages who may use the bot.

use hermes_gateway::Platform;
use hermes_store::{ApprovalResult, PairedUser, PendingUser, Store};
use hermes_types::Timestamp;
use serde_json::json;

use crate::args::PairingAction;
use crate::database::with_store;
use crate::screen::{Tone, format_count, format_since, format_until, one_line};
use crate::{Context, Failure, Result, block_on};

pub(crate) fn run(action: PairingAction, context: &Context) -> Result<()> {
    block_on(async {
        match action {
            PairingAction::Ls => list(context).await,
            PairingAction::Approve { platform, code } => approve(context, platform.as_str(), &code).await,
            PairingAction::Revoke { platform, user } => revoke(context, platform.as_str(), &user).await,
            PairingAction::ClearPending { platform } => clear_pending(context, platform).await,
        }
    })
}

async fn list(context: &Context) -> Result<()> {
    let users =
        async |store: &Store| Ok((store.pending_users(Timestamp::now()).await?, store.paired_users().await?));
    let (pending, paired) = with_store(context, users).await?;
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

async fn approve(context: &Context, platform: &str, code: &str) -> Result<()> {
    let unknown_code = || {
        Failure::failed(format!("no pending request on {platform} has this code")).hint(
            "Run `hermes pairing ls` to list requests. A code expires after an hour; a message to the bot creates a new one.",
        )
    };
    let approve = async |store: &Store| Ok(Some(store.approve_code(platform, code, Timestamp::now()).await?));
    match with_store(context, approve).await? {
        Some(ApprovalResult::Approved(user)) => {
            let name = one_line(&format!("{} ({})", user.name, user.user), 120);
            let approved = context.screen.paint(Tone::Good, "approved:");
            context.screen.print(&json!(user), &format!("{approved} {name} on {platform}"))
        }
        Some(ApprovalResult::WrongCode { left: 1 }) => {
            Err(unknown_code()
                .hint(format!("One more wrong code blocks approvals on {platform} for an hour.")))
        }
        Some(ApprovalResult::WrongCode { .. }) | None => Err(unknown_code()),
        Some(ApprovalResult::Locked { until }) => Err(Failure::refused(format!(
            "too many wrong codes: approvals on {platform} are blocked for another {}",
            format_until(until)
        ))
        .hint("Ask the users to write to the bot again after that.")),
    }
}

async fn revoke(context: &Context, platform: &str, user: &str) -> Result<()> {
    // Elsewhere users are named `platform:id`.
    let user = user.strip_prefix(platform).and_then(|rest| rest.strip_prefix(':')).unwrap_or(user);
    let shown = one_line(user, 60);
    if !with_store(context, async |store| Ok(store.revoke_pairing(platform, user).await?)).await? {
        return Err(Failure::failed(format!("`{shown}` has no access on {platform}")).hint(
            "Run `hermes pairing ls` to list approved users. Users of an allow list are in the configuration.",
        ));
    }
    let document = json!({"platform": platform, "user": user, "revoked": true});
    context.screen.print(&document, &format!("revoked access of {shown} on {platform}"))
}

async fn clear_pending(context: &Context, platform: Option<Platform>) -> Result<()> {
    let platform = platform.map(Platform::as_str);
    let clear = async |store: &Store| Ok(store.clear_pending(platform, Timestamp::now()).await?);
    let cleared = with_store(context, clear).await?;
    let text = format!("cleared {}", format_count(cleared, "pending request"));
    context.screen.print(&json!({"cleared": cleared}), &text)
}
