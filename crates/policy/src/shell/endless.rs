//! Finds functions and loops that start processes without end.

use super::syntax::{CommandNode, List, SyntaxNode, literal_text};

/// Whether a function calls itself in a pipe or in the background: each call starts at least two
/// more.
pub(super) fn calls_itself_in_parallel(name: &str, node: &SyntaxNode, parallel: bool) -> bool {
    match &node.command {
        CommandNode::Simple(simple) => {
            parallel && simple.words.iter().take(3).any(|word| literal_text(word) == Some(name))
        }
        CommandNode::Compound(compound) => compound.lists.iter().flatten().any(|item| {
            let parallel = parallel || item.background || item.pipeline.len() > 1;
            item.pipeline.iter().any(|node| calls_itself_in_parallel(name, node, parallel))
        }),
        CommandNode::Function { .. } => false,
    }
}

/// Whether an endless loop starts a background process in each iteration.
pub(super) fn spawns_for_ever(lists: &[List]) -> bool {
    let [condition, body] = lists else { return false };
    let endless = |node| matches!(program_and_word_count(node), Some((":" | "true", 1)));
    let waits = |node| matches!(program_and_word_count(node), Some(("sleep" | "wait" | "read", _)));
    let (background, rest): (Vec<_>, Vec<_>) = body.iter().partition(|item| item.background);
    condition.iter().flat_map(|item| &item.pipeline).all(endless)
        && !background.is_empty()
        && !rest.iter().flat_map(|item| &item.pipeline).any(waits)
}

fn program_and_word_count(node: &SyntaxNode) -> Option<(&str, usize)> {
    let CommandNode::Simple(simple) = &node.command else { return None };
    Some((literal_text(simple.words.first()?)?, simple.words.len()))
}
