//! When something comes again: at times as cron has them, or every so often. Everything is UTC, so that no hour
//! comes twice or never, and follows from the text alone, so that any leader finds the same times.

use crate::Span;

const MINUTE_MS: u64 = 60_000;
const DAY_MINUTES: u64 = 1440;
/// From a 29 February to the next one eight years may pass (2096 to 2104).
const DAYS_LOOKED: u64 = 9 * 366;
/// More times that have passed are not counted one by one.
const COUNTED_MAX: u64 = 1000;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const SHORT: [(&str, &str); 8] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@quarterly", "0 0 1 1,4,7,10 *"),
];

/// When it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Schedule {
    Cron(Cron),
    /// At each multiple of so many milliseconds since 1970.
    Every(u64),
}

/// Each set has a bit for each number that fits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
    /// Days of the month and of the week are both given: either is enough, as cron has it.
    either_day: bool,
}

/// Times that have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// The last of them, milliseconds since 1970.
    pub last_ms: u64,
    /// How many there were, [`COUNTED_MAX`] at most.
    pub count: u64,
}

struct Field {
    name: &'static str,
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of the month", min: 1, max: 31, names: &[] },
    Field { name: "month", min: 1, max: 12, names: &MONTHS },
    Field { name: "day of the week", min: 0, max: 7, names: &DAYS },
];

impl Schedule {
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let cron = Cron::parse(text)?;
        match cron.next_after(0) {
            Some(_) => Ok(Self::Cron(cron)),
            None => Err(format!("{text:?} never comes: none of its months has such a day")),
        }
    }

    pub fn every(span: Span) -> Self {
        Self::Every(span.as_millis().max(1))
    }

    /// The first time after this moment; both milliseconds since 1970.
    pub fn next_after(&self, after_ms: u64) -> Option<u64> {
        match self {
            Self::Every(ms) => (after_ms / ms + 1).checked_mul(*ms),
            Self::Cron(cron) => cron.next_after(after_ms),
        }
    }

    /// The times after `seen_ms`, up to now.
    pub fn due(&self, seen_ms: u64, now_ms: u64) -> Option<Due> {
        let mut last_ms = self.next_after(seen_ms).filter(|at| *at <= now_ms)?;
        if let Self::Every(ms) = self {
            let (first, last_ms) = (last_ms, now_ms / ms * ms);
            return Some(Due { last_ms, count: ((last_ms - first) / ms + 1).min(COUNTED_MAX) });
        }
        let mut count = 1;
        while let Some(at) = self.next_after(last_ms).filter(|at| *at <= now_ms) {
            if count == COUNTED_MAX {
                // What is years in the past is not walked through: the last of it is near its end.
                last_ms = self.last_before(last_ms, now_ms);
                break;
            }
            (last_ms, count) = (at, count + 1);
        }
        Some(Due { last_ms, count })
    }

    /// The last time up to now, after one that is known: found by halves.
    fn last_before(&self, known_ms: u64, now_ms: u64) -> u64 {
        let (mut known, mut none_after) = (known_ms, now_ms);
        while known < none_after {
            let middle = known + (none_after - known) / 2;
            match self.next_after(middle).filter(|at| *at <= none_after) {
                Some(at) => known = at,
                None => none_after = middle,
            }
        }
        known
    }
}

impl Cron {
    fn parse(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let plain = match SHORT.iter().find(|(short, _)| *short == lower) {
            Some((_, plain)) => (*plain).to_owned(),
            None if lower.starts_with('@') => {
                let known: Vec<&str> = SHORT.iter().map(|(short, _)| *short).collect();
                return Err(format!("{text:?} is no time that is known; there are {}", known.join(", ")));
            }
            None => lower,
        };
        let words: Vec<&str> = plain.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = words[..] else {
            return Err(format!(
                "{text:?} has {} fields; write five, minute hour day month weekday (UTC), like \"0 3 * * *\"",
                words.len()
            ));
        };
        let weekdays = FIELDS[4].read(weekday)?;
        Ok(Self {
            minutes: FIELDS[0].read(minute)?,
            hours: FIELDS[1].read(hour)?,
            days: FIELDS[2].read(day)?,
            months: FIELDS[3].read(month)?,
            // Sunday is 0 and 7.
            weekdays: weekdays & 0x7f | weekdays >> 7,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    fn next_after(&self, after_ms: u64) -> Option<u64> {
        let first = after_ms / MINUTE_MS + 1;
        let today = first / DAY_MINUTES;
        for day in today..=today + DAYS_LOOKED {
            if !self.has_day(day) {
                continue;
            }
            let from = if day == today { first % DAY_MINUTES } else { 0 };
            let fits = |minute: &u64| has(self.hours, minute / 60) && has(self.minutes, minute % 60);
            if let Some(minute) = (from..DAY_MINUTES).find(fits) {
                return (day * DAY_MINUTES + minute).checked_mul(MINUTE_MS);
            }
        }
        None
    }

    /// Of a day, counted from 1 January 1970.
    fn has_day(&self, day: u64) -> bool {
        let (month, of_month) = civil(day);
        // That day was a Thursday.
        let (by_month, by_week) = (has(self.days, of_month), has(self.weekdays, (day + 4) % 7));
        has(self.months, month) && if self.either_day { by_month || by_week } else { by_month && by_week }
    }
}

impl Field {
    /// `*`, `5`, `1-5`, `*/10`, `1-30/2`, `mon-fri`, and several of them with commas.
    fn read(&self, text: &str) -> Result<u64, String> {
        let mut set = 0;
        for part in text.split(',') {
            let wrong = || {
                let (name, min, max) = (self.name, self.min, self.max);
                format!("{part:?} is no {name}; write {min} to {max}, a range like {min}-{max}, *, or a step like */2")
            };
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => (range, Some(step.parse::<u64>().map_err(|_| wrong())?)),
                None => (part, None),
            };
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (self.min, self.max - u64::from(self.max == 7)),
                Some((from, to)) => (self.number(from).ok_or_else(wrong)?, self.number(to).ok_or_else(wrong)?),
                None => {
                    let from = self.number(range).ok_or_else(wrong)?;
                    (from, if step.is_some() { self.max } else { from })
                }
            };
            if from > to || step == Some(0) {
                return Err(wrong());
            }
            (from..=to).step_by(step.unwrap_or(1).min(64) as usize).for_each(|n| set |= 1 << n);
        }
        Ok(set)
    }

    fn number(&self, text: &str) -> Option<u64> {
        let named = self.names.iter().position(|name| *name == text).map(|at| at as u64 + self.min);
        let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        named.or_else(|| text.parse().ok().filter(|n| is_plain && (self.min..=self.max).contains(n)))
    }
}

fn has(set: u64, number: u64) -> bool {
    set >> number & 1 == 1
}

/// Month (1 to 12) and day of the month of a day.
fn civil(day: u64) -> (u64, u64) {
    let (_, month, day) = date(day);
    (month, day)
}

/// Year, month (1 to 12) and day of the month of a day, counted from 1 January 1970. Years are counted from March on, so that the day
/// that leap years have more comes last (Howard Hinnant, "chrono-compatible low-level date algorithms").
pub fn date(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + day / 146_097 * 400 + u64::from(month <= 2), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds since 1970 of a day and a time, by counting days.
    fn at(year: u64, month: u64, day: u64, hour: u64, minute: u64) -> u64 {
        let is_leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
        let days_of = |y: u64, m: u64| match m {
            2 => 28 + u64::from(is_leap(y)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let years: u64 = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum();
        let months: u64 = (1..month).map(|m| days_of(year, m)).sum();
        (((years + months + day - 1) * 24 + hour) * 60 + minute) * MINUTE_MS
    }

    fn next(text: &str, after: u64) -> u64 {
        Schedule::parse(text).unwrap().next_after(after).unwrap()
    }

    #[test]
    fn times_come_as_cron_has_them() {
        // 26 November 2026 is a Thursday.
        let now = at(2026, 11, 26, 20, 58);
        for (text, expect) in [
            ("* * * * *", at(2026, 11, 26, 20, 59)),
            ("0 3 * * *", at(2026, 11, 27, 3, 0)),
            ("58 20 * * *", at(2026, 11, 27, 20, 58)),
            ("*/5 * * * *", at(2026, 11, 26, 21, 0)),
            ("7/20 * * * *", at(2026, 11, 26, 21, 7)),
            ("10-20/4 * * * *", at(2026, 11, 26, 21, 10)),
            ("0 0 1 * *", at(2026, 12, 1, 0, 0)),
            ("0 0 31 * *", at(2026, 12, 31, 0, 0)),
            ("0 0 30 2,4 *", at(2027, 4, 30, 0, 0)),
            ("0 0 29 2 *", at(2028, 2, 29, 0, 0)),
            ("0 9 * * mon-fri", at(2026, 11, 27, 9, 0)),
            ("0 9 * * SUN", at(2026, 11, 29, 9, 0)),
            ("0 9 * * 7", at(2026, 11, 29, 9, 0)),
            ("0 9 * * 5-7", at(2026, 11, 27, 9, 0)),
            ("0 9 * Jan,Feb *", at(2027, 1, 1, 9, 0)),
            // Both days given: either is enough. With a * (and a step of it), both must fit.
            ("0 0 13 * fri", at(2026, 11, 27, 0, 0)),
            ("0 0 */2 * fri", at(2026, 11, 27, 0, 0)),
            ("0 0 */28 * fri", at(2027, 1, 1, 0, 0)),
            ("@hourly", at(2026, 11, 26, 21, 0)),
            ("@daily", at(2026, 11, 27, 0, 0)),
            ("@Weekly", at(2026, 11, 29, 0, 0)),
            ("@monthly", at(2026, 12, 1, 0, 0)),
            ("@yearly", at(2027, 1, 1, 0, 0)),
        ] {
            assert_eq!(next(text, now), expect, "{text}");
        }
        // Eight years without a 29 February; 2100 is no leap year, 2000 was one.
        assert_eq!(next("0 0 29 2 *", at(2096, 2, 29, 0, 0)), at(2104, 2, 29, 0, 0));
        assert_eq!(next("0 0 29 2 *", at(1999, 1, 1, 0, 0)), at(2000, 2, 29, 0, 0));
        assert_eq!(next("59 23 31 12 *", at(2026, 12, 31, 23, 59)), at(2027, 12, 31, 23, 59));
        assert_eq!(next("* * * * *", at(2026, 11, 26, 20, 58) + 59_999), at(2026, 11, 26, 20, 59));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (day, is) in [
            (0, (1, 1)),
            (58, (2, 28)),
            (59, (3, 1)),
            (789, (2, 29)),
            (790, (3, 1)),
            (11_016, (2, 29)),
            (47_540, (2, 28)),
        ] {
            assert_eq!(civil(day), is, "{day}");
        }
        for (year, month, day) in [(2026, 11, 26), (2027, 12, 31), (2100, 3, 1), (2400, 2, 29)] {
            assert_eq!(civil(at(year, month, day, 0, 0) / MINUTE_MS / DAY_MINUTES), (month, day));
        }
    }

    #[test]
    fn what_is_no_time_or_never_comes_is_refused_with_words() {
        for (text, why) in [
            ("0 0 30 2 *", "never comes"),
            ("0 0 31 4,6,9,11 *", "never comes"),
            ("0 3 * *", "has 4 fields"),
            ("", "has 0 fields"),
            ("0 0 3 * * *", "has 6 fields"),
            ("60 * * * *", "\"60\" is no minute; write 0 to 59"),
            ("* 24 * * *", "is no hour"),
            ("* * 0 * *", "is no day of the month"),
            ("* * * 13 *", "is no month"),
            ("* * * * 8", "is no day of the week"),
            ("* * * * fre", "is no day of the week"),
            ("5-1 * * * *", "is no minute"),
            ("*/0 * * * *", "is no minute"),
            ("+5 * * * *", "is no minute"),
            ("1,,2 * * * *", "is no minute"),
            ("*/99999999999999999999 * * * *", "is no minute"),
            ("@reboot", "there are @hourly"),
        ] {
            let told = Schedule::parse(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn times_that_have_passed_are_counted_and_the_last_is_known() {
        let daily = Schedule::parse("0 3 * * *").unwrap();
        let seen = at(2026, 11, 20, 3, 0);
        assert_eq!(daily.due(seen, seen + 1), None);
        assert_eq!(daily.due(seen, at(2026, 11, 21, 3, 0)), Some(Due { last_ms: at(2026, 11, 21, 3, 0), count: 1 }));
        assert_eq!(daily.due(seen, at(2026, 11, 26, 9, 0)), Some(Due { last_ms: at(2026, 11, 26, 3, 0), count: 6 }));
        // A clock that went back has no time that comes.
        assert_eq!(daily.due(seen, seen - 1), None);
        let often = Schedule::parse("* * * * *").unwrap();
        let far = at(2036, 11, 20, 4, 0);
        assert_eq!(often.due(seen, far + 7), Some(Due { last_ms: far, count: COUNTED_MAX }));
        let days = Schedule::parse("*/2 * 1 1 *").unwrap();
        assert_eq!(days.due(seen, far).unwrap().last_ms, at(2036, 1, 1, 23, 58));
        let every = Schedule::every(Span::secs(2));
        assert_eq!(every.next_after(3_999), Some(4_000));
        assert_eq!((every.next_after(4_000), every.due(4_000, 5_999)), (Some(6_000), None));
        assert_eq!(every.due(4_000, 11_000), Some(Due { last_ms: 10_000, count: 3 }));
        assert_eq!(every.due(0, u64::MAX).unwrap().count, COUNTED_MAX);
    }
}
