//! Calendar dates and times in UTC, Gregorian.

use crate::Duration;

const DAY: u64 = 86_400;

/// Formats a time since 1970 as `2026-11-22 08:30:05`.
pub fn time(since: Duration) -> String {
    let seconds = since.as_millis() / 1_000;
    let (hours, minutes) = (seconds % DAY / 3_600, seconds % 3_600 / 60);
    format!("{} {hours:02}:{minutes:02}:{:02}", day(seconds), seconds % 60)
}

/// Formats a time since 1970 as `2026-11-22T08:30:05.123Z` (RFC 3339).
pub fn rfc3339(since: Duration) -> String {
    let millis = since.as_millis();
    let text = time(since).replacen(' ', "T", 1);
    format!("{text}.{:03}Z", millis % 1_000)
}

/// Formats a time since 1970 as `20261122T083005Z` (ISO 8601, basic format).
pub fn iso8601_basic(since: Duration) -> String {
    let text: String = time(since).chars().filter(|c| !"-:".contains(*c)).collect();
    format!("{}Z", text.replacen(' ', "T", 1))
}

/// Formats seconds since 1970 as `2026-11-22`.
pub fn day(seconds: u64) -> String {
    // Days since 1 March of the year 0, so that leap days are at the end of a year.
    let days = seconds / DAY + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + carry)
}

/// Parses `2026-11-22`, `2026-11-22T08:30` or `2026-11-22 08:30:05`; `None` if it is not a valid
/// time after 1970.
pub fn read(text: &str) -> Option<Duration> {
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let number = |text: &str, min: u64, max: u64| {
        let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        text.parse().ok().filter(|n| digits && (min..=max).contains(n))
    };
    let mut parts = date.split('-');
    let mut part = |min, max| number(parts.next()?, min, max);
    let (year, month, of_month) = (part(1970, 9999)?, part(1, 12)?, part(1, 31)?);
    let mut parts = clock.trim_end_matches('Z').splitn(3, ':');
    let mut part = |max| parts.next().map_or(Some(0), |text| number(text, 0, max));
    let of_day = part(23)? * 3_600 + part(59)? * 60 + part(59)?;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    let days = 365 * year + leaps + (153 * month + 2) / 5 + of_month - 1 - 719_468;
    let seconds = days * DAY;
    // Rejects dates such as the 31st of a month with 30 days.
    (day(seconds) == date).then(|| Duration::from_secs(seconds + of_day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_305_600, "2026-11-22"),
        ] {
            assert_eq!(day(seconds), text);
            assert_eq!(read(text), Some(Duration::from_secs(seconds / DAY * DAY)), "{text}");
        }
        let at = Duration::from_secs(1_795_305_600 + 8 * 3_600 + 30 * 60 + 5);
        assert_eq!(time(at), "2026-11-22 08:30:05");
        assert_eq!(rfc3339(at + Duration::from_millis(7)), "2026-11-22T08:30:05.007Z");
        assert_eq!(iso8601_basic(at), "20261122T083005Z");
        assert_eq!(read("2026-11-22 08:30:05"), Some(at));
        assert_eq!(read("2026-11-22T08:30:05Z"), Some(at));
        for bad in ["", "7d", "2026-11", "2026-02-30", "2026-11-22T25:00", "1969-12-31", "2026-1-2"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
