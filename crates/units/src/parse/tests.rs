use proptest::prelude::*;

use super::*;

fn rate(text: &str) -> u64 {
    parse_rate(text).unwrap_or_else(|e| panic!("{e}")).as_bps()
}

fn bytes(text: &str) -> u64 {
    parse_bytes(text).unwrap_or_else(|e| panic!("{e}")).get()
}

fn nanos(text: &str) -> u64 {
    parse_duration(text).unwrap_or_else(|e| panic!("{e}")).as_nanos()
}

#[test]
fn what_people_write() {
    assert_eq!(rate("500mbit"), 500_000_000);
    assert_eq!(rate("10Gbit/s"), 10_000_000_000);
    assert_eq!(rate("10 gbitps"), 10_000_000_000);
    assert_eq!(rate("60MB/s"), 480_000_000);
    assert_eq!(rate("1MiB/s"), 8 << 20);
    assert_eq!(rate("2.5gbit"), 2_500_000_000);
    assert_eq!(rate("7 B/s"), 56);
    assert_eq!(bytes("1GiB"), 1 << 30);
    assert_eq!(bytes("1.5kB"), 1_500);
    assert_eq!(bytes("100mb"), 100_000_000);
    assert_eq!(bytes(".5KiB"), 512);
    assert_eq!(bytes("2.TiB"), 2 << 40);
    assert_eq!(nanos("250ms"), 250_000_000);
    assert_eq!(nanos("10m"), 600_000_000_000);
    assert_eq!(nanos(" 1.5h "), 5_400_000_000_000);
    assert_eq!(nanos("0"), 0);
    assert_eq!(bytes("0.00"), 0);
}

#[test]
fn a_bare_number_shows_the_two_readings() {
    let text = |e: ParseError| e.to_string();
    let rate = text(parse_rate("100").unwrap_err());
    assert_eq!(rate, "`100` needs a unit: write `100mbit` or `100MB/s`");
    assert!(text(parse_bytes("10").unwrap_err()).contains("`10MB` or `10MiB`"));
    assert!(text(parse_duration("2.5").unwrap_err()).contains("`2.5s` or `2.5ms`"));
}

#[test]
fn what_is_not_a_quantity_is_refused() {
    for text in ["", " ", ".", "mbit", "-5mbit", "+5mbit", "nan", "inf", "1.2.3mbit", "1..mbit"] {
        let error = parse_rate(text).unwrap_err();
        assert!(matches!(error, ParseError::NotANumber { .. }), "{text}: {error}");
    }
    for text in ["5mb/s", "5Mb/s", "5b/s", "5Mbps", "5mbit/h", "5e3mbit", "5MB", "5ü", "1,5mbit"] {
        let error = parse_rate(text).unwrap_err();
        assert!(matches!(error, ParseError::UnknownUnit { .. }), "{text}: {error}");
    }
    assert!(matches!(parse_bytes("5mbit"), Err(ParseError::UnknownUnit { .. })));
    assert!(matches!(parse_duration("5min"), Err(ParseError::UnknownUnit { .. })));
}

#[test]
fn digits_are_kept_to_the_last_and_too_many_refused() {
    assert_eq!(bytes("18446744073709551615B"), u64::MAX);
    assert_eq!(bytes("9007199254740993B"), 9_007_199_254_740_993);
    assert_eq!(nanos("1.000000001s"), 1_000_000_001);
    let digits = "9".repeat(400);
    for text in ["18446744073709551616B", "16777216.1TiB", &format!("{digits}B")] {
        assert!(matches!(parse_bytes(text), Err(ParseError::TooLarge { .. })), "{text}");
    }
    assert_eq!(bytes(&format!("0.{digits}TiB")), (1 << 40) - 1);
    assert_eq!(bytes(&format!("{}7B", "0".repeat(400))), 7);
    assert!(matches!(parse_duration("300000d"), Err(ParseError::TooLarge { .. })));
}

proptest! {
    #[test]
    fn exact_numbers_round_trip(n: u64) {
        prop_assert_eq!(rate(&format!("{n}bit")), n);
        prop_assert_eq!(bytes(&format!("{n} B")), n);
        prop_assert_eq!(nanos(&format!("{n}ns")), n);
    }

    #[test]
    fn what_is_printed_reads_back_as_nearly_the_same(n: u64, shift in 0..64u32) {
        let n = n >> shift;
        let close = |m: u64, digits: f64| m.abs_diff(n) as f64 <= 1.0 + n as f64 * digits;
        prop_assert!(close(rate(&DataRate::from_bps(n).to_string()), 0.051));
        prop_assert!(close(bytes(&ByteCount(n).to_string()), 0.051));
        let printed = Duration::from_nanos(n).to_string();
        if let Ok(duration) = parse_duration(&printed) {
            prop_assert!(close(duration.as_nanos(), 1e-15), "{}", printed);
        } else {
            // Printing rounds to 53 bits: only the longest spans round up beyond 64 bits.
            prop_assert!(n > u64::MAX - 2048);
        }
    }

    #[test]
    fn any_text_gives_a_number_or_an_error(text in "\\PC{0,20}", digits in "[0-9.]{0,60}") {
        for text in [&text, &format!("{digits}{text}"), &format!("{digits}MB/s"), &format!("{digits}d")] {
            let _ = (parse_rate(text), parse_bytes(text), parse_duration(text));
        }
    }
}
