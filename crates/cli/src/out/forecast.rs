//! What `forecast` tells.

use std::fmt::Write as _;

use packtrain_client::forecast::{HopSeries, Outlook, Sensor};
use packtrain_units::{DataRate, date};
use serde::Serialize;

/// The forecast for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    event: &'static str,
    from: &'a str,
    to: &'a str,
    throughput_mbps: f64,
    /// Four measurements in five are expected between them.
    interval_mbps: [f64; 2],
    /// One standard deviation of the errors so far, as a part of what was measured.
    relative_error: f64,
    rtt_ms: Option<f64>,
    measurements: u64,
    /// When the newest one was made, since 1970.
    newest_us: u64,
    method: String,
    selector: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<Vec<MethodError<'a>>>,
}

/// What a depot expects of a hop, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Hop<'a> {
    event: &'static str,
    from: &'a str,
    to: String,
    sensor: &'static str,
    throughput_mbps: f64,
    /// Four measurements in five are expected between them.
    interval_mbps: [f64; 2],
    relative_error: f64,
    /// Of one stream.
    stream_mbps: f64,
    rtt_ms: Option<f64>,
    /// Part of the bytes that was sent again.
    lost: f64,
    measurements: u32,
    age_seconds: f64,
}

impl<'a> Hop<'a> {
    /// Of a depot's hop.
    pub(crate) fn new(from: &'a str, series: &HopSeries) -> Self {
        let rate = |rate: DataRate| mbps(rate.as_bps() as f64);
        Self {
            event: "hop",
            from,
            to: to(series),
            sensor: sensor(series),
            throughput_mbps: rate(series.rate),
            interval_mbps: [rate(series.interval.0), rate(series.interval.1)],
            relative_error: f64::from(series.error_ppm) / 1e6,
            stream_mbps: rate(series.each),
            rtt_ms: series.min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            lost: f64::from(series.lost_ppm) / 1e6,
            measurements: series.samples,
            age_seconds: series.age.as_secs_f64(),
        }
    }
}

/// Port 1 stands for any.
fn to(series: &HopSeries) -> String {
    if series.to.port == 1 { series.to.host.to_string() } else { series.to.to_string() }
}

fn sensor(series: &HopSeries) -> &'static str {
    match series.sensor {
        Sensor::Relayed => "relayed",
        Sensor::Probed => "probed",
    }
}

/// The same for people.
pub(crate) fn hop(from: &str, series: &HopSeries) -> String {
    let rtt = series
        .min_rtt
        .map_or_else(String::new, |rtt| format!(", round trip {:.1} ms", rtt.as_secs_f64() * 1e3));
    format!(
        "{} -> {}: {} (four times in five between {} and {}), one stream {}{rtt}\n\
         from {} measurements ({}), the newest {:.0} s old; sent again: {:.4} %",
        super::clean(from),
        to(series),
        series.rate,
        series.interval.0,
        series.interval.1,
        series.each,
        series.samples,
        sensor(series),
        series.age.as_secs_f64(),
        f64::from(series.lost_ppm) / 1e4,
    )
}

/// How wrong a method was.
#[derive(Debug, Serialize)]
struct MethodError<'a> {
    method: &'a str,
    /// Nothing as long as there was one measurement only.
    mean_error_mbps: Option<f64>,
}

fn mbps(bits: f64) -> f64 {
    bits / 1e6
}

impl<'a> Event<'a> {
    /// Of a path.
    pub(crate) fn new(from: &'a str, to: &'a str, outlook: &'a Outlook, explain: bool) -> Self {
        let throughput = &outlook.throughput;
        let methods = outlook.methods.iter().map(|(method, error)| MethodError {
            method,
            mean_error_mbps: error.is_finite().then(|| mbps(*error)),
        });
        Self {
            event: "forecast",
            from,
            to,
            throughput_mbps: mbps(throughput.value),
            interval_mbps: [mbps(throughput.interval.0), mbps(throughput.interval.1)],
            relative_error: throughput.relative_error,
            rtt_ms: outlook.rtt.map(|rtt| rtt.value * 1e3),
            measurements: throughput.measurements,
            newest_us: outlook.newest.at.as_micros(),
            method: throughput.method.to_string(),
            selector: throughput.selector.to_string(),
            methods: explain.then(|| methods.collect()),
        }
    }
}

/// The forecast for people.
pub(crate) fn words(from: &str, to: &str, outlook: &Outlook, explain: bool) -> String {
    let throughput = &outlook.throughput;
    let rate = |bits: f64| DataRate::from_bps(bits.round() as u64).to_string();
    let mut text = format!(
        "{} -> {}: {} (four times in five between {} and {})",
        super::clean(from),
        super::clean(to),
        rate(throughput.value),
        rate(throughput.interval.0),
        rate(throughput.interval.1)
    );
    if let Some(rtt) = outlook.rtt {
        let _ = write!(text, ", round trip {:.1} ms", rtt.value * 1e3);
    }
    let _ = write!(
        text,
        "\nfrom {} measurement{}, the newest {} of {} UTC; by {}, chosen by {}",
        throughput.measurements,
        if throughput.measurements == 1 { "" } else { "s" },
        outlook.newest.rate,
        date::time(outlook.newest.at),
        throughput.method,
        throughput.selector
    );
    if explain {
        for (method, error) in &outlook.methods {
            let error = if error.is_finite() { rate(*error) } else { "-".to_owned() };
            let _ = write!(text, "\n{method:>24}  mean error {error:>14}");
        }
    }
    text
}
