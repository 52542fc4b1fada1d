//! Replies with which a model says that it does not want to reply.

const NO_REPLY_TOKENS: [&str; 4] = ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY"];

/// Whether the whole reply is a no-reply token. A reply that only mentions one is sent.
pub(crate) fn is_no_reply(reply: &str) -> bool {
    NO_REPLY_TOKENS.contains(&reply.trim())
}

/// Whether a partial reply is empty or the beginning of a no-reply token.
pub(crate) fn may_become_no_reply(begun: &str) -> bool {
    NO_REPLY_TOKENS.iter().any(|token| token.starts_with(begun.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_possible_token_is_held_back() {
        for begun in ["", " ", "[", "[SIL", "[SILENT]\n", "NO", "NO ", "SILENT"] {
            assert!(may_become_no_reply(begun), "{begun:?}");
        }
        for begun in ["[SILENT].", "No", "NO W", "SILENTLY", "I"] {
            assert!(!may_become_no_reply(begun), "{begun:?}");
        }
    }

    #[test]
    fn only_a_whole_token_counts() {
        for reply in ["[SILENT]", "SILENT", "NO_REPLY", "NO REPLY", "  [SILENT]\n", "\r\nNO REPLY "] {
            assert!(is_no_reply(reply), "{reply:?}");
        }
        for reply in [
            "", " ", "silent", "[SILENT].", "[silent]", "NO  REPLY", "SILENT SILENT", "I say [SILENT]",
            "`SILENT`",
        ] {
            assert!(!is_no_reply(reply), "{reply:?}");
        }
    }
}
