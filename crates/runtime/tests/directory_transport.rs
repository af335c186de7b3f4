//! A copy over a transport that is not part of Packtrain: see [`directory`].

mod directory;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use packtrain_object::SourceName;
use packtrain_runtime::control;
use packtrain_runtime::handshake::SessionRequest;
use packtrain_runtime::permissions::Permissions;
use packtrain_runtime::session::{Observer, Stop};
use packtrain_runtime::sink::{self, Destination, SinkSetup};
use packtrain_runtime::source::{self, SourceSetup, SourceSpec};
use packtrain_runtime::transports::{Hints, Moved, SinkTransports, SourceTransports};
use packtrain_service::ceilings::Ceilings;
use packtrain_service::{Notice, StopHandle};
use packtrain_transfer::message::Options;
use packtrain_transfer::{FileReport, Outcome, SinkTotals, SourceTotals};

struct Quiet;

impl Observer for Quiet {
    fn file(&self, _: &[u8], _: &FileReport) {}
    fn source(&self, _: &SourceTotals) {}
    fn sink(&self, _: &SinkTotals) {}
    fn transport(&self, name: &str) {
        assert_eq!(name, "directory");
    }
    fn notice(&self, _: &Notice) {}
}

/// Copies `from` to `to` over files in `dir`.
fn copy(from: &Path, to: &Path, dir: &Path) -> (Outcome, Moved) {
    let (near, far) = control::pair().unwrap();
    let (permissions, ceilings) = (Permissions::default(), Ceilings::default());
    let config = SessionRequest::default().plan(Hints::default(), &permissions, &ceilings, None);
    let options = Options { recursive: true, ..Options::default() };
    let sink_transport = Box::new(directory::DirectorySink::new(dir));
    let transports = SinkTransports::of(config.clone(), far.tx.clone(), vec![sink_transport]);
    let destination = Destination {
        path: to.as_os_str().as_bytes().to_vec(),
        confined: None,
        sources: 1,
        names: Some(vec![SourceName::Named(b"tree".to_vec())]),
        owners: false,
    };
    std::thread::scope(|scope| {
        let sink_options = options.clone();
        scope.spawn(move || {
            let stop = Stop::new(StopHandle::new());
            let (tx, options) = (far.tx.clone(), sink_options);
            let setup = SinkSetup {
                changed_pieces: false,
                control: far,
                options,
                destination,
                observer: &Quiet,
                transports,
                stop,
            };
            assert_eq!(sink::run(setup).0.failure, None);
            tx.close();
        });
        let source_transport = Box::new(directory::DirectorySource::new(dir));
        let setup = SourceSetup {
            control: near,
            options,
            observer: &Quiet,
            transports: SourceTransports::of(config, vec![source_transport]),
            stop: Stop::new(StopHandle::new()),
        };
        source::run(setup, SourceSpec::Paths(vec![from.as_os_str().as_bytes().to_vec()]))
    })
}

#[test]
fn a_tree_is_copied_over_a_transport_of_the_test() {
    let top = tempfile::tempdir().unwrap();
    let (from, dir) = (top.path().join("tree"), top.path().join("exchange"));
    std::fs::create_dir_all(from.join("sub")).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let bytes: Vec<u8> = (0..20_000_003u32).map(|n| (n >> 3) as u8 ^ (n >> 13) as u8 | 1).collect();
    for (name, size) in [("large", bytes.len()), ("sub/small", 1000), ("sub/empty", 0)] {
        std::fs::write(from.join(name), &bytes[..size]).unwrap();
    }
    let to = top.path().join("copy");
    std::fs::create_dir(&to).unwrap();
    let (outcome, moved) = copy(&from, &to, &dir);
    assert_eq!(outcome.failure, None);
    assert_eq!(moved.shares, [("directory".to_owned(), packtrain_units::ByteCount(20_001_003))]);
    for (name, size) in [("large", bytes.len()), ("sub/small", 1000), ("sub/empty", 0)] {
        assert!(std::fs::read(to.join("tree").join(name)).unwrap() == bytes[..size], "{name}");
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "all ranges were taken");
}
