//! The output of `forecast`.

use std::fmt::Write as _;

use packtrain_client::forecast::{HopSeries, PathForecast, Sensor};
use packtrain_units::{DataRate, date};
use serde::Serialize;

/// The forecast as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    event: &'static str,
    from: &'a str,
    to: &'a str,
    throughput_mbps: f64,
    /// The range that four of five measurements are expected in.
    interval_mbps: [f64; 2],
    /// One standard deviation of the errors so far, as a fraction of the measured value.
    relative_error: f64,
    rtt_ms: Option<f64>,
    measurements: u64,
    /// Time of the newest measurement, in microseconds since 1970.
    newest_us: u64,
    method: String,
    selector: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    methods: Option<Vec<MethodError<'a>>>,
}

/// A depot's forecast of a hop, as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Hop<'a> {
    event: &'static str,
    from: &'a str,
    to: String,
    sensor: &'static str,
    throughput_mbps: f64,
    /// The range that four of five measurements are expected in.
    interval_mbps: [f64; 2],
    relative_error: f64,
    /// Of one stream.
    stream_mbps: f64,
    rtt_ms: Option<f64>,
    /// Fraction of the bytes that was retransmitted.
    lost: f64,
    measurements: u32,
    age_seconds: f64,
}

impl<'a> Hop<'a> {
    /// From the series of a depot's hop.
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

/// The remote host of the hop. Port 1 means any port.
fn to(series: &HopSeries) -> String {
    if series.to.port == 1 { series.to.host.to_string() } else { series.to.to_string() }
}

fn sensor(series: &HopSeries) -> &'static str {
    match series.sensor {
        Sensor::Relayed => "relayed",
        Sensor::Probed => "probed",
    }
}

/// The forecast of a hop as text.
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

/// The error of a method.
#[derive(Debug, Serialize)]
struct MethodError<'a> {
    method: &'a str,
    /// None after only one measurement.
    mean_error_mbps: Option<f64>,
}

fn mbps(bits: f64) -> f64 {
    bits / 1e6
}

impl<'a> Event<'a> {
    /// From the forecast of a path.
    pub(crate) fn new(
        from: &'a str,
        to: &'a str,
        path_forecast: &'a PathForecast,
        explain: bool,
    ) -> Self {
        let throughput = &path_forecast.throughput;
        let methods = path_forecast.methods.iter().map(|(method, error)| MethodError {
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
            rtt_ms: path_forecast.rtt.map(|rtt| rtt.value * 1e3),
            measurements: throughput.measurements,
            newest_us: path_forecast.newest.at.as_micros(),
            method: throughput.method.to_string(),
            selector: throughput.selector.to_string(),
            methods: explain.then(|| methods.collect()),
        }
    }
}

/// The forecast as text.
pub(crate) fn text(from: &str, to: &str, path_forecast: &PathForecast, explain: bool) -> String {
    let throughput = &path_forecast.throughput;
    let rate = |bits: f64| DataRate::from_bps(bits.round() as u64).to_string();
    let mut text = format!(
        "{} -> {}: {} (four times in five between {} and {})",
        super::clean(from),
        super::clean(to),
        rate(throughput.value),
        rate(throughput.interval.0),
        rate(throughput.interval.1)
    );
    if let Some(rtt) = path_forecast.rtt {
        let _ = write!(text, ", round trip {:.1} ms", rtt.value * 1e3);
    }
    let _ = write!(
        text,
        "\nfrom {} measurement{}, the newest {} of {} UTC; by {}, chosen by {}",
        throughput.measurements,
        if throughput.measurements == 1 { "" } else { "s" },
        path_forecast.newest.rate,
        date::time(path_forecast.newest.at),
        throughput.method,
        throughput.selector
    );
    if explain {
        for (method, error) in &path_forecast.methods {
            let error = if error.is_finite() { rate(*error) } else { "-".to_owned() };
            let _ = write!(text, "\n{method:>24}  mean error {error:>14}");
        }
    }
    text
}
