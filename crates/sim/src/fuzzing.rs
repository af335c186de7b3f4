//! Bodies of fuzz targets.

use crate::file::ScenarioFile;

/// A scenario file: any bytes give a scenario or an error. So does a trace of rates.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(schedule) = packtrain_link::RateSchedule::from_trace(text) {
        assert_eq!(schedule.check(), Ok(()));
    }
    let Ok(file) = ScenarioFile::parse("fuzz", text, &[]) else { return };
    let _ = file.settings(file.runs() - 1);
    let _ = file.scenario(file.runs() - 1);
}
