//! When an idle conversation is replaced by a new one.

use std::time::Duration;

use chrono::{DateTime, Days, Local, NaiveDate, NaiveTime, TimeDelta, TimeZone};
use hermes_session::ConversationReset;
use hermes_types::Timestamp;

use crate::frontend::format_duration;

const DST_STEP: TimeDelta = TimeDelta::minutes(15);
const MAX_DST_STEPS: i32 = 24 * 4;

/// When an idle conversation is replaced by a new one; checked when the next message arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResetPolicy {
    pub idle: Option<Duration>,
    /// At this hour, local time.
    pub daily: Option<u32>,
    pub notify: bool,
}

impl ResetPolicy {
    /// Whether a conversation last used at `last` is due for a reset, in the local time zone.
    pub(crate) fn reset_due(&self, last: Timestamp, now: Timestamp) -> Option<ConversationReset> {
        self.reset_due_in(&Local, last, now)
    }

    fn reset_due_in<Z: TimeZone>(
        &self,
        zone: &Z,
        last: Timestamp,
        now: Timestamp,
    ) -> Option<ConversationReset> {
        let quiet = Duration::from_secs(now.seconds().saturating_sub(last.seconds()));
        if self.idle.is_some_and(|idle| quiet >= idle) {
            let note =
                format!("new conversation: the last one was idle for {}", format_duration(quiet.as_secs()));
            return Some(ConversationReset { reason: "idle", note: self.notify.then_some(note) });
        }
        let hour = self.daily?;
        let struck = last_occurrence(zone, hour, local_time(zone, now)?)?;
        let note = format!("new conversation: one starts every day at {hour:02}:00");
        (local_time(zone, last)? < struck)
            .then(|| ConversationReset { reason: "daily", note: self.notify.then_some(note) })
    }
}

fn local_time<Z: TimeZone>(zone: &Z, at: Timestamp) -> Option<DateTime<Z>> {
    zone.timestamp_opt(i64::try_from(at.seconds()).ok()?, 0).single()
}

fn last_occurrence<Z: TimeZone>(zone: &Z, hour: u32, now: DateTime<Z>) -> Option<DateTime<Z>> {
    let today = now.date_naive();
    let days = [Some(today), today.checked_sub_days(Days::new(1))];
    days.into_iter().flatten().filter_map(|day| occurrence_on(zone, day, hour)).find(|struck| *struck <= now)
}

/// When the local clock shows `hour` on a day. An hour that occurs twice counts the first time; a
/// skipped one counts when the clock jumps over it.
fn occurrence_on<Z: TimeZone>(zone: &Z, day: NaiveDate, hour: u32) -> Option<DateTime<Z>> {
    let shown = day.and_time(NaiveTime::from_hms_opt(hour, 0, 0)?);
    (0..=MAX_DST_STEPS).find_map(|count| zone.from_local_datetime(&(shown + DST_STEP * count)).earliest())
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;
    use chrono_tz::Tz::{America__New_York as NewYork, Europe__Berlin as Berlin, UTC};

    use super::*;

    /// A moment in UTC, as `2026-03-29 00:59`.
    fn at(text: &str) -> Timestamp {
        let naive = chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
        Timestamp::from_seconds(u64::try_from(naive.and_utc().timestamp()).unwrap())
    }

    fn daily(zone: Tz, hour: u32, last: &str, now: &str) -> bool {
        let reset = ResetPolicy { daily: Some(hour), ..ResetPolicy::default() };
        reset.reset_due_in(&zone, at(last), at(now)).is_some_and(|reset| reset.reason == "daily")
    }

    #[test]
    fn the_daily_reset_follows_local_time() {
        let cases = [
            (UTC, 4, "2026-11-15 03:59", "2026-11-15 04:00", true),
            (UTC, 4, "2026-11-15 04:00", "2026-11-16 03:59", false),
            (UTC, 4, "2026-11-14 12:00", "2026-11-15 03:59", false),
            (UTC, 4, "2026-11-13 12:00", "2026-11-15 03:59", true),
            (UTC, 0, "2026-12-31 23:59", "2027-01-01 00:00", true),
            // Berlin: one hour ahead in winter, two in summer.
            (Berlin, 4, "2026-01-15 02:59", "2026-01-15 03:00", true),
            (Berlin, 4, "2026-07-15 01:59", "2026-07-15 02:00", true),
            (Berlin, 4, "2026-07-15 02:00", "2026-07-15 03:00", false),
            // In spring there is no 02:00; 03:00 follows 01:59, at 01:00 UTC.
            (Berlin, 2, "2026-03-29 00:59", "2026-03-29 01:00", true),
            (Berlin, 2, "2026-03-29 00:30", "2026-03-29 00:59", false),
            (Berlin, 2, "2026-03-29 01:00", "2026-03-29 23:00", false),
            // In autumn 02:00 occurs twice, at 00:00 and 01:00 UTC.
            (Berlin, 2, "2026-10-24 23:59", "2026-10-25 00:00", true),
            (Berlin, 2, "2026-10-25 00:30", "2026-10-25 01:30", false),
            (Berlin, 4, "2026-10-25 02:59", "2026-10-25 03:00", true),
            (NewYork, 2, "2026-03-08 06:59", "2026-03-08 07:00", true),
            (NewYork, 4, "2026-11-01 08:59", "2026-11-01 09:00", true),
        ];
        for (zone, hour, last, now, expected) in cases {
            assert_eq!(daily(zone, hour, last, now), expected, "{zone} {hour} {last} {now}");
        }
    }

    #[test]
    fn an_idle_conversation_is_reset() {
        let reset = ResetPolicy { idle: Some(Duration::from_secs(86_400)), daily: None, notify: true };
        let reset =
            |last, now| reset.reset_due_in(&Berlin, at(last), at(now)).map(|reset| reset.note.unwrap());
        assert_eq!(reset("2026-11-14 00:00", "2026-11-14 23:59"), None);
        let expected = "new conversation: the last one was idle for 26 h 0 min";
        assert_eq!(reset("2026-11-14 00:00", "2026-11-15 02:00").as_deref(), Some(expected));
        // A clock set back is no reason.
        assert_eq!(reset("2026-11-14 00:00", "2026-11-13 00:00"), None);
        let never =
            ResetPolicy::default().reset_due_in(&Berlin, at("2020-01-01 00:00"), at("2026-01-01 00:00"));
        assert!(never.is_none());
    }

    #[test]
    fn idle_takes_precedence_over_daily() {
        let reset = ResetPolicy { idle: Some(Duration::from_secs(3_600)), daily: Some(4), notify: true };
        let reset = |last, now| reset.reset_due_in(&UTC, at(last), at(now)).map(|reset| reset.reason);
        assert_eq!(reset("2026-11-14 03:30", "2026-11-14 04:10"), Some("daily"));
        assert_eq!(reset("2026-11-14 03:30", "2026-11-14 05:10"), Some("idle"));
    }
}
