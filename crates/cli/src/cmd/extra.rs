//! The options of `cp` that an end of protocol version 1 does not know, and what is said about
//! options that `cp` accepts without an effect.

use std::os::unix::ffi::OsStrExt;

use packtrain_service::{Backup, CpRequest, ExtraOptions, Location, ModeChange, Options};

use crate::args::CpArgs;
use crate::exit::Exit;

/// The options of this module, by their names in clap, for places that do not support them.
pub(super) const IDS: &[&str] = &[
    "copy_links",
    "one_file_system",
    "ignore_existing",
    "existing",
    "size_only",
    "max_size",
    "min_size",
    "mkpath",
    "chmod",
    "backup",
    "remove_source_files",
    "hard_links",
    "xattrs",
    "acls",
];

/// The first option that decides which files are written, replaced or removed, other than the
/// `harmless` ones. A place that does not support it refuses it from every source: without it the
/// copy would change what it protects.
pub(super) fn protecting(options: &Options, harmless: &[&str]) -> Option<&'static str> {
    let extra = &options.extra;
    let all = [
        (options.dry_run, "dry-run"),
        (options.update, "update"),
        (extra.ignore_existing, "ignore-existing"),
        (extra.existing_only, "existing"),
        (extra.backup.is_some(), "backup"),
        (extra.min_size.is_some(), "min-size"),
        (extra.max_size.is_some(), "max-size"),
        (extra.one_file_system, "one-file-system"),
        (extra.size_only, "size-only"),
        (extra.remove_source_files, "remove-source-files"),
        (options.checksum, "checksum"),
    ];
    let mut set = all.into_iter().filter_map(|(is_set, option)| is_set.then_some(option));
    set.find(|option| !harmless.contains(option))
}

/// The options of protocol version 2.
pub(super) fn options(args: &CpArgs, plain: &Options) -> Result<ExtraOptions, Exit> {
    let (choose, keep) = (&args.choose, &args.keep_old);
    if choose.min_size.zip(choose.max_size).is_some_and(|(least, most)| least > most) {
        return Err(Exit::usage("--min-size is above --max-size: no file has such a size"));
    }
    if choose.one_file_system && plain.force_delete {
        return Err(Exit::usage(
            "--force-delete would delete what other file systems hold at the source: leave out -x or \
             --force-delete",
        ));
    }
    let mode_changes = match &keep.chmod {
        None => Vec::new(),
        Some(_) if !plain.preserve_mode => {
            return Err(Exit::usage(
                "--chmod changes the mode that is kept: add mode to --preserve",
            ));
        }
        Some(list) => ModeChange::parse_list(list, umask())
            .map_err(|error| Exit::usage(format!("--chmod: {error}")))?,
    };
    let extra = ExtraOptions {
        copy_links: choose.copy_links,
        one_file_system: choose.one_file_system,
        make_path: keep.mkpath,
        ignore_existing: choose.ignore_existing,
        existing_only: choose.existing,
        size_only: choose.size_only,
        min_size: choose.min_size,
        max_size: choose.max_size,
        mode_changes,
        backup: backup(args)?,
        whole_file: keep.whole_file,
        remove_source_files: keep.remove_source_files,
        hard_links: keep.hard_links,
        xattrs: keep.xattrs,
        acls: keep.acls,
        report_metadata: plain.dry_run,
        ..ExtraOptions::default()
    };
    extra.check().map_err(|why| Exit::usage(format!("--backup, --chmod: {why}")))?;
    Ok(extra)
}

fn backup(args: &CpArgs) -> Result<Option<Backup>, Exit> {
    let keep = &args.keep_old;
    if !keep.backup {
        return Ok(None);
    }
    let dir = match &keep.backup_dir {
        None => None,
        Some(dir) => {
            let bytes = dir.as_os_str().as_bytes();
            let parts = bytes.split(|b| *b == b'/').filter(|part| !matches!(*part, b"" | b"."));
            let clean = parts.collect::<Vec<_>>().join(&b'/');
            let leaves = clean.split(|b| *b == b'/').any(|part| part == b"..");
            if bytes.starts_with(b"/") || clean.is_empty() || leaves {
                let text = format!(
                    "--backup-dir {}: it lies below the target: name a path relative to it",
                    dir.display()
                );
                return Err(Exit::usage(text));
            }
            Some(clean)
        }
    };
    let suffix = match &keep.suffix {
        Some(suffix) => suffix.as_bytes().to_vec(),
        None if dir.is_some() => Vec::new(),
        None => b"~".to_vec(),
    };
    Ok(Some(Backup { suffix, dir }))
}

/// The umask, which limits changes of `--chmod` that name no class.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

/// What of mode, times and owner is kept beyond `--preserve`: with `-a` everything.
pub(super) fn preserve(args: &CpArgs, options: &mut Options) -> Result<(), Exit> {
    let rsync = &args.rsync;
    if rsync.owner != rsync.group && !rsync.archive {
        let (given, missing) = if rsync.owner { ("-o", "-g") } else { ("-g", "-o") };
        return Err(Exit::usage(format!(
            "{given} without {missing} is not in this version: owner and group are kept together, \
             by -o -g or --preserve=mode,times,owner"
        )));
    }
    options.preserve_mode |= rsync.archive || rsync.perms || args.keep_old.acls;
    options.preserve_times |= rsync.archive || rsync.times;
    options.preserve_owner |= rsync.archive || rsync.owner;
    Ok(())
}

/// Refuses to remove sources of a copy whose target is not stored where the copy ends.
pub(super) fn removal(request: &CpRequest) -> Result<(), Exit> {
    let piped = request.dest == Location::Stdio || request.sources.contains(&Location::Stdio);
    if request.options.extra.remove_source_files && piped {
        return Err(Exit::usage("--remove-source-files does not apply to a pipe: leave it out"));
    }
    Ok(())
}

/// Lets the other end expand the patterns of remote sources. A local shell has expanded local ones.
pub(super) fn patterns(request: &mut CpRequest) -> Result<(), Exit> {
    let is_pattern = |place: &Location| {
        let is_ours = matches!(place, Location::Ssh { .. } | Location::Server { .. });
        is_ours && place.path().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
    };
    if !request.sources.iter().any(is_pattern) {
        return Ok(());
    }
    if request.options.files_from.is_some() {
        return Err(Exit::usage("--files-from needs one directory as its source, not a pattern"));
    }
    if request.dest == Location::Stdio {
        return Err(Exit::usage("standard output takes one file, not a pattern: name one source"));
    }
    request.options.extra.patterns = true;
    Ok(())
}

/// What is said about options that are accepted without an effect.
pub(super) fn notes(args: &CpArgs) -> Vec<String> {
    let rsync = &args.rsync;
    let all = [
        (rsync.compress, "-z has no effect: cp does not compress"),
        (rsync.partial, "--partial has no effect: an interrupted copy resumes anyway"),
        (
            rsync.partial_progress,
            "-P has no effect: a terminal shows progress, and an interrupted copy resumes anyway",
        ),
        (
            rsync.append,
            "--append has no effect: an interrupted copy resumes anyway, and between machines a file \
             that grew is sent without the pieces that the target has",
        ),
        (rsync.devices, "-D has no effect: devices, sockets and named pipes are skipped"),
    ];
    let mut notes: Vec<String> =
        all.into_iter().filter(|(given, _)| *given).map(|(_, note)| note.to_owned()).collect();
    let first = args.places.first().map(|place| place.as_bytes()).unwrap_or_default();
    if rsync.partial_progress && !first.is_empty() && first.iter().all(u8::is_ascii_digit) {
        notes.push(format!(
            "for scp's -P PORT write -e 'ssh -p {0}': {0} is a source here",
            String::from_utf8_lossy(first)
        ));
    }
    notes
}
