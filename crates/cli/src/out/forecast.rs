//! The output of `forecast`.

use std::fmt::Write as _;

use packtrain_client::forecast::{HopSeries, PathForecast, Sensor};
use packtrain_units::{DataRate, date};

use super::object::Object;

/// The forecast of a path as JSON. Four of five measurements are expected in `interval_mbps`;
/// `relative_error` is one standard deviation of the errors so far, as a fraction of the measured
/// value; `newest_us` is since 1970.
pub(crate) fn path_event(from: &str, to: &str, forecast: &PathForecast, explain: bool) -> Object {
    let throughput = &forecast.throughput;
    let methods = forecast.methods.iter().map(|(method, error)| {
        // There is no error after only one measurement.
        let error = error.is_finite().then(|| mbps(*error));
        Object::default().with("method", method).with("mean_error_mbps", error)
    });
    Object::event("forecast")
        .with("from", from)
        .with("to", to)
        .with("throughput_mbps", mbps(throughput.value))
        .with("interval_mbps", [mbps(throughput.interval.0), mbps(throughput.interval.1)])
        .with("relative_error", throughput.relative_error)
        .with("rtt_ms", forecast.rtt.map(|rtt| rtt.value * 1e3))
        .with("measurements", throughput.measurements)
        .with("newest_us", forecast.newest.at.as_micros())
        .with("method", throughput.method.to_string())
        .with("selector", throughput.selector.to_string())
        .with_some("methods", explain.then(|| methods.collect::<Vec<_>>()))
}

/// A depot's forecast of a hop as JSON. `stream_mbps` is the rate of one stream, `lost` the fraction
/// of the bytes that was retransmitted.
pub(crate) fn hop_event(from: &str, series: &HopSeries) -> Object {
    let rate = |rate: DataRate| mbps(rate.as_bps() as f64);
    Object::event("hop")
        .with("from", from)
        .with("to", to(series))
        .with("sensor", sensor(series))
        .with("throughput_mbps", rate(series.rate))
        .with("interval_mbps", [rate(series.interval.0), rate(series.interval.1)])
        .with("relative_error", f64::from(series.error_ppm) / 1e6)
        .with("stream_mbps", rate(series.each))
        .with("rtt_ms", series.min_rtt.map(|rtt| rtt.as_secs_f64() * 1e3))
        .with("lost", f64::from(series.lost_ppm) / 1e6)
        .with("measurements", series.samples)
        .with("age_seconds", series.age.as_secs_f64())
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

fn mbps(bits: f64) -> f64 {
    bits / 1e6
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
