//! When a conversation is over because nobody went on with it.

use std::time::Duration;

use chrono::{DateTime, Days, Local, NaiveDate, NaiveTime, TimeDelta, TimeZone};
use hermes_types::Timestamp;

/// Clocks are put forward by whole multiples of this.
const QUARTER: TimeDelta = TimeDelta::minutes(15);
/// How much a clock that was put forward is searched for the next time that it shows.
const QUARTERS: i32 = 24 * 4;

/// When a conversation that nobody went on with is over. It is looked at when the next letter comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reset {
    /// After this long without a word.
    pub idle: Option<Duration>,
    /// At this hour of the day, by the clock on the wall.
    pub daily: Option<u32>,
    /// Whether the chat is told.
    pub notify: bool,
}

/// Why a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Nothing was said for this long.
    Idle(Duration),
    /// This hour has struck.
    Daily(u32),
}

impl Over {
    /// Its word in the store.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Idle(_) => "idle",
            Self::Daily(_) => "daily",
        }
    }

    /// What the chat is told.
    pub(crate) fn told(self) -> String {
        match self {
            Self::Idle(time) => format!("a new conversation: the last one was idle for {}", long(time)),
            Self::Daily(hour) => format!("a new conversation: one begins every day at {hour:02}:00"),
        }
    }
}

impl Reset {
    /// Whether a conversation in which something was last said then is over by now, in the zone of this machine.
    pub(crate) fn over(&self, last: Timestamp, now: Timestamp) -> Option<Over> {
        self.over_in(&Local, last, now)
    }

    fn over_in<Z: TimeZone>(&self, zone: &Z, last: Timestamp, now: Timestamp) -> Option<Over> {
        let quiet = Duration::from_secs(now.seconds().saturating_sub(last.seconds()));
        if self.idle.is_some_and(|idle| quiet >= idle) {
            return Some(Over::Idle(quiet));
        }
        let hour = self.daily?;
        let struck = last_struck(zone, hour, moment(zone, now)?)?;
        (moment(zone, last)? < struck).then_some(Over::Daily(hour))
    }
}

fn moment<Z: TimeZone>(zone: &Z, at: Timestamp) -> Option<DateTime<Z>> {
    zone.timestamp_opt(i64::try_from(at.seconds()).ok()?, 0).single()
}

/// When the clock last struck this hour.
fn last_struck<Z: TimeZone>(zone: &Z, hour: u32, now: DateTime<Z>) -> Option<DateTime<Z>> {
    let today = now.date_naive();
    let days = [Some(today), today.checked_sub_days(Days::new(1))];
    days.into_iter().flatten().filter_map(|day| strikes(zone, day, hour)).find(|struck| *struck <= now)
}

/// When the clock strikes this hour on a day. An hour that comes twice strikes the first time; one that is left out strikes when the
/// clock is put forward over it.
fn strikes<Z: TimeZone>(zone: &Z, day: NaiveDate, hour: u32) -> Option<DateTime<Z>> {
    let shown = day.and_time(NaiveTime::from_hms_opt(hour, 0, 0)?);
    (0..=QUARTERS).find_map(|count| zone.from_local_datetime(&(shown + QUARTER * count)).earliest())
}

/// A time as people say it.
fn long(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    let (count, word) = match minutes {
        0..120 => (minutes, "minute"),
        120..4_320 => (minutes / 60, "hour"),
        _ => (minutes / 1_440, "day"),
    };
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
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
        let reset = Reset { daily: Some(hour), ..Reset::default() };
        reset.over_in(&zone, at(last), at(now)) == Some(Over::Daily(hour))
    }

    #[test]
    fn an_hour_strikes_once_a_day_by_the_clock_on_the_wall() {
        let cases = [
            (UTC, 4, "2026-11-15 03:59", "2026-11-15 04:00", true),
            (UTC, 4, "2026-11-15 04:00", "2026-11-16 03:59", false),
            (UTC, 4, "2026-11-14 12:00", "2026-11-15 03:59", false),
            (UTC, 4, "2026-11-13 12:00", "2026-11-15 03:59", true),
            (UTC, 0, "2026-12-31 23:59", "2027-01-01 00:00", true),
            // Berlin: winter time is one hour ahead, summer time two.
            (Berlin, 4, "2026-01-15 02:59", "2026-01-15 03:00", true),
            (Berlin, 4, "2026-07-15 01:59", "2026-07-15 02:00", true),
            (Berlin, 4, "2026-07-15 02:00", "2026-07-15 03:00", false),
            // The night of spring has no 02:00; 03:00 follows 01:59 at 01:00 UTC.
            (Berlin, 2, "2026-03-29 00:59", "2026-03-29 01:00", true),
            (Berlin, 2, "2026-03-29 00:30", "2026-03-29 00:59", false),
            (Berlin, 2, "2026-03-29 01:00", "2026-03-29 23:00", false),
            // The night of autumn has 02:00 twice, at 00:00 and at 01:00 UTC.
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
    fn whoever_is_quiet_for_long_enough_begins_anew() {
        let reset = Reset { idle: Some(Duration::from_secs(86_400)), daily: None, notify: true };
        let over = |last, now| reset.over_in(&Berlin, at(last), at(now)).map(Over::told);
        assert_eq!(over("2026-11-14 00:00", "2026-11-14 23:59"), None);
        let told = "a new conversation: the last one was idle for 26 hours";
        assert_eq!(over("2026-11-14 00:00", "2026-11-15 02:00").as_deref(), Some(told));
        // A clock that was put back is no reason.
        assert_eq!(over("2026-11-14 00:00", "2026-11-13 00:00"), None);
        assert_eq!(Reset::default().over_in(&Berlin, at("2020-01-01 00:00"), at("2026-01-01 00:00")), None);
    }

    #[test]
    fn of_two_reasons_the_longer_silence_is_told() {
        let reset = Reset { idle: Some(Duration::from_secs(3_600)), daily: Some(4), notify: true };
        let over = |last, now| reset.over_in(&UTC, at(last), at(now)).map(Over::word);
        assert_eq!(over("2026-11-14 03:30", "2026-11-14 04:10"), Some("daily"));
        assert_eq!(over("2026-11-14 03:30", "2026-11-14 05:10"), Some("idle"));
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        for (minutes, said) in
            [(0, "0 minutes"), (1, "1 minute"), (119, "119 minutes"), (1_560, "26 hours"), (6_000, "4 days")]
        {
            assert_eq!(long(Duration::from_secs(minutes * 60)), said);
        }
    }
}
