//! Runs calls in the order in which they came, and in parallel where their effects allow it.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::{Effects, lock};

#[derive(Debug, Default)]
pub(super) struct Sequencer {
    /// The effects of the calls that run or wait, oldest first.
    calls: Mutex<Vec<Arc<Effects>>>,
    changed: Notify,
}

/// A place in the sequence, released when dropped.
pub(super) struct SequencerSlot<'a> {
    sequencer: &'a Sequencer,
    effects: Arc<Effects>,
}

impl Sequencer {
    /// Waits until every earlier call that cannot run in parallel with this one has ended.
    pub(super) async fn acquire_slot(&self, effects: Effects) -> SequencerSlot<'_> {
        let slot = SequencerSlot { sequencer: self, effects: Arc::new(effects) };
        lock(&self.calls).push(Arc::clone(&slot.effects));
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if slot.can_start() {
                return slot;
            }
            changed.await;
        }
    }
}

impl SequencerSlot<'_> {
    fn can_start(&self) -> bool {
        let calls = lock(&self.sequencer.calls);
        let mut before = calls.iter().take_while(|other| !Arc::ptr_eq(other, &self.effects));
        before.all(|other| self.effects.is_parallel_with(other))
    }
}

impl Drop for SequencerSlot<'_> {
    fn drop(&mut self) {
        lock(&self.sequencer.calls).retain(|other| !Arc::ptr_eq(other, &self.effects));
        self.sequencer.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_call_waits_only_for_earlier_calls_that_conflict_with_it() {
        let sequencer = Sequencer::default();
        let writes = |path: &str| sequencer.acquire_slot(Effects::Writes(path.to_owned()));
        let first = writes("/a").await;
        let other = writes("/b").await;
        let mut second = pin!(writes("/a"));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        // It conflicts with no running call, but with the one that waits.
        let mut third = pin!(sequencer.acquire_slot(Effects::Reads("/a".to_owned())));
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        drop(other);
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(second) = futures_util::poll!(second.as_mut()) else {
            panic!("the call still waits")
        };
        assert!(futures_util::poll!(third.as_mut()).is_pending());
        drop(second);
        assert!(futures_util::poll!(third.as_mut()).is_ready());
    }

    #[tokio::test]
    async fn a_dropped_call_blocks_no_other() {
        let sequencer = Sequencer::default();
        let first = sequencer.acquire_slot(Effects::Everything).await;
        {
            let mut dropped = pin!(sequencer.acquire_slot(Effects::Everything));
            assert!(futures_util::poll!(dropped.as_mut()).is_pending());
        }
        drop(first);
        assert!(futures_util::poll!(pin!(sequencer.acquire_slot(Effects::Everything))).is_ready());
    }
}
