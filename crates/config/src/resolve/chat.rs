//! The accounts of chat platforms.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_gateway::discord::{self, Discord, ResumeState};
use hermes_gateway::{
    AccessControl, AccessSettings, Channel, ChatAddress, Platform, PlatformAccess, StreamingOptions,
};
use hermes_store::Store;
use hermes_types::Secret;

use crate::failure::Failure;
use crate::keys::Config;
use crate::setting::CommaList;

/// An account on a chat platform.
pub struct ChatAccount(discord::DiscordSettings);

/// The chat of a platform that gets messages without a target.
pub struct HomeChannel {
    pub address: ChatAddress,
    /// The configured display name.
    pub name: String,
}

/// The home channel of each platform that has one. A choice made in a chat takes precedence over
/// the configuration.
pub async fn home_channels(config: &Config, store: Option<&Store>) -> Result<Vec<HomeChannel>, Failure> {
    let mut homes = Vec::new();
    for platform in Platform::ALL {
        let (chat, thread, name) = match platform {
            Platform::Discord => {
                let chosen = &config.discord;
                (&chosen.home_channel, &chosen.home_channel_thread_id, &chosen.home_channel_name)
            }
        };
        let chosen = match store {
            Some(store) => store.home_chat(platform.as_str()).await?,
            None => None,
        };
        homes.extend(match chosen {
            Some(chat) => Some(HomeChannel { address: ChatAddress { platform, chat }, name: String::new() }),
            None if chat.is_empty() => None,
            None => {
                let address = ChatAddress::new(platform, chat, Some(thread));
                Some(HomeChannel { address, name: name.clone() })
            }
        });
    }
    Ok(homes)
}

/// All configured accounts.
pub fn accounts(config: &Config) -> Result<Vec<ChatAccount>, Failure> {
    let discord =
        config.discord.bot_token.clone().map(|token| discord_settings(config, token)).transpose()?;
    Ok(discord.map(ChatAccount).into_iter().collect())
}

fn discord_settings(config: &Config, token: Secret) -> Result<discord::DiscordSettings, Failure> {
    let chosen = &config.discord;
    let channels = |list: &CommaList| list.0.iter().collect();
    let proxy = chosen.proxy.as_ref().map(|proxy| proxy.expose().trim()).filter(|proxy| !proxy.is_empty());
    let proxy = proxy.map(hermes_net::ProxyServer::parse).transpose().map_err(|error| {
        Failure::configuration(format!("cannot use discord.proxy: {error}"))
            .hint("Use `http://host:port` or `socks5://host:port`.")
    })?;
    Ok(discord::DiscordSettings {
        token,
        proxy,
        root_certificates: None,
        api_base: chosen.api_base.clone(),
        gateway_url: chosen.gateway_url.clone(),
        require_mention: chosen.require_mention,
        free_response_channels: channels(&chosen.free_response_channels),
        thread_require_mention: chosen.thread_require_mention,
        auto_thread: chosen.auto_thread,
        no_thread_channels: channels(&chosen.no_thread_channels),
        allowed_channels: channels(&chosen.allowed_channels),
        ignored_channels: channels(&chosen.ignored_channels),
        overrides: chosen.channels.clone().into_iter().collect(),
        ignore_no_mention: chosen.ignore_no_mention,
        dm_role_guild: Some(chosen.dm_role_auth_guild.trim().to_owned())
            .filter(|guild| !guild.is_empty() && !chosen.allowed_roles.0.is_empty()),
        history: if chosen.history_backfill { chosen.history_backfill_limit } else { 0 },
        allow_bots: chosen.allow_bots,
        reactions: chosen.reactions,
        reply_to: chosen.reply_to_mode,
        mentions: discord::MentionPolicy {
            everyone: chosen.allow_mention_everyone,
            roles: chosen.allow_mention_roles,
            users: chosen.allow_mention_users,
            replied_user: chosen.allow_mention_replied_user,
        },
        max_attachment_bytes: chosen.max_attachment_bytes,
        command_sync: chosen.command_sync_policy,
        command_visibility: if chosen.hide_slash_commands {
            discord::CommandVisibility::Admins
        } else {
            discord::CommandVisibility::Everyone
        },
    })
}

impl ChatAccount {
    pub fn platform(&self) -> Platform {
        Platform::Discord
    }

    /// How running turns are displayed.
    pub fn streaming_options(&self, config: &Config) -> StreamingOptions {
        let chosen = &config.display_discord;
        let interval = Duration::try_from_secs_f64(config.streaming.edit_interval).unwrap_or(Duration::MAX);
        let refresh = Duration::from_secs(config.agent.gateway_notify_interval);
        StreamingOptions {
            edit_interval: chosen.streaming.unwrap_or(config.streaming.enabled).then_some(interval),
            progress: chosen.tool_progress.unwrap_or(config.display.tool_progress),
            refresh_interval: (!refresh.is_zero()).then_some(refresh),
        }
    }

    /// The credential. Two gateways with the same one would both answer.
    pub fn secret(&self) -> &Secret {
        &self.0.token
    }

    pub fn access_control(&self, config: &Config, store: &Store) -> AccessControl {
        let settings = AccessSettings {
            platforms: HashMap::from([(self.platform(), discord_rules(config))]),
            allowed_users: config.gateway.allowed_users.0.clone(),
            allow_all_users: config.gateway.allow_all_users,
            strangers: config.general.unauthorized_dm_behavior,
        };
        AccessControl::new(settings, store.clone())
    }

    /// The channel of the account, with its stored position.
    pub async fn channel(self, store: &Store) -> Result<Arc<dyn Channel>, Failure> {
        let word = self.platform().as_str();
        let resume = ResumeState {
            threads: store.joined_threads(word).await?,
            last_messages: store.last_inbox_messages(word).await?,
            bookmark: store.bookmark(word).await?,
        };
        Ok(Arc::new(Discord::new(self.0, resume)))
    }
}

fn discord_rules(config: &Config) -> PlatformAccess {
    let chosen = &config.discord;
    PlatformAccess {
        allowed_users: chosen.allowed_users.0.clone(),
        allowed_roles: chosen.allowed_roles.0.clone(),
        allow_all_users: chosen.allow_all_users,
        bots: chosen.allow_bots,
        strangers: chosen.unauthorized_dm_behavior,
        admins: chosen.allow_admin_from.0.clone(),
        group_admins: chosen.group_allow_admin_from.0.clone(),
        commands: chosen.user_allowed_commands.0.clone(),
        group_commands: chosen.group_user_allowed_commands.0.clone(),
        approvers: chosen.approvers.0.clone(),
    }
}
