//! The chat gateway: from an inbound message to its reply, across crashes and restarts.
//!
//! A [`Channel`] is one account on one platform. The gateway stores each inbound message before it
//! acknowledges it to the platform, and marks it done in the transaction that stores the reply. The
//! outbox worker then delivers the reply until it is known to have succeeded or to be impossible.
//!
//! *Invariants.* The gateway does nothing for a sender without access, except to tell them how to get
//! it. A message belongs to its author; text of different people is never merged, only quoted with
//! attribution. Each session has one key, which `session_key` computes.
//!
//! *Where to start reading.* `message` for what arrives, `channel` for what a platform does,
//! `access` for who may use the bot, `router` for which session gets a message, `frontend` for how
//! sessions reply, and `frontend::streaming` for what is shown while a turn runs.

mod access;
mod channel;
mod context;
mod error;
mod frontend;
mod gateway;
mod host;
mod media;
mod media_cache;
mod message;
mod no_reply;
mod outbox;
mod rate_limit;
mod reset;
mod router;
pub mod service;
mod session_key;
mod split;
mod target;

pub use access::{AccessControl, AccessSettings, BotPolicy, PlatformAccess, StrangerPolicy};
pub use channel::{
    AttachmentFile, BoxFuture, ButtonStyle, Capabilities, Channel, ChannelHealth, ChannelSink, DeliveryCheck,
    FatalError, FetchError, Inbound, InboundEvent, MessageButton, OutboundMessage, Reaction, SendError,
    discord,
};
pub use error::Error;
pub use frontend::{StreamingOptions, ToolProgress};
pub use gateway::{Gateway, GatewaySettings};
pub use host::GatewayHost;
pub use media::MediaSettings;
pub use message::{
    Attachment, ButtonPress, Chat, ChatKind, ContextMessage, InboundMessage, InteractionToken, Platform,
    Quote, ReplyTarget, Sender,
};
pub use rate_limit::RateLimit;
pub use reset::ResetPolicy;
pub use session_key::{SessionScope, is_shared_session};
pub use split::split_message;
pub use target::{ChatAddress, DeliveryTarget, TargetError};
