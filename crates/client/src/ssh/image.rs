//! The image of the running program that is sent to another machine.

use std::ops::Range;

/// Offsets in the ELF header of the class (32 or 64 bits) and the byte order.
const CLASS: usize = 4;
const ORDER: usize = 5;

/// Offsets of the fields that describe the loaded segments.
struct Fields {
    /// `e_phoff` and `e_shoff`, which have the width of an address.
    program_headers: usize,
    section_headers: usize,
    wide: usize,
    /// `e_phentsize`, which `e_phnum`, `e_shentsize`, `e_shnum` and `e_shstrndx` follow.
    entry_size: usize,
    /// `p_offset` and `p_filesz` in a program header.
    offset: usize,
    size: usize,
}

const ELF64: Fields = Fields {
    program_headers: 32,
    section_headers: 40,
    wide: 8,
    entry_size: 54,
    offset: 8,
    size: 32,
};
const ELF32: Fields = Fields {
    program_headers: 28,
    section_headers: 32,
    wide: 4,
    entry_size: 42,
    offset: 4,
    size: 16,
};

/// Removes what the kernel does not load: debug information, symbols and the section table. A
/// program in an unknown format is not changed.
pub(super) fn without_sections(program: &mut Vec<u8>) {
    let Some((end, fields)) = loaded(program) else { return };
    let cleared = [
        fields.section_headers..fields.section_headers + fields.wide,
        // `e_shnum` and `e_shstrndx`.
        fields.entry_size + 6..fields.entry_size + 10,
    ];
    for range in cleared {
        program[range].fill(0);
    }
    program.truncate(end);
}

/// The end of the last loaded byte.
fn loaded(program: &[u8]) -> Option<(usize, &'static Fields)> {
    if program.get(..4)? != b"\x7fELF" {
        return None;
    }
    let fields = match program.get(CLASS)? {
        1 => &ELF32,
        2 => &ELF64,
        _ => return None,
    };
    let little = *program.get(ORDER)? == 1;
    let number = |at: usize, width: usize| number(program.get(at..at + width)?, little);
    let start = number(fields.program_headers, fields.wide)?;
    let each = number(fields.entry_size, 2)?;
    let count = number(fields.entry_size + 2, 2)?;
    let mut end = start.checked_add(each.checked_mul(count)?)?;
    for index in 0..count {
        let header = start.checked_add(index * each)?;
        let of = |field: usize| number(header.checked_add(field)?, fields.wide);
        end = end.max(of(fields.offset)?.checked_add(of(fields.size)?)?);
    }
    let header: Range<usize> = 0..fields.entry_size + 10;
    (header.end <= end && end <= program.len()).then_some((end, fields))
}

fn number(bytes: &[u8], little: bool) -> Option<usize> {
    let push = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    let value = if little { bytes.iter().rev().fold(0, push) } else { bytes.iter().fold(0, push) };
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_runs_without_its_sections() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let mut small = own.clone();
        without_sections(&mut small);
        assert!(small.len() < own.len(), "a test has symbols");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, &small).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        // A child of another thread may have the file open for writing for a moment.
        let list = (0..100).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Command::new(&path).arg("--list").output().ok()
        });
        let list = list.unwrap();
        assert!(list.status.success());
        assert!(String::from_utf8_lossy(&list.stdout).contains("a_program_runs_without"));
        let again = small.clone();
        without_sections(&mut small);
        assert!(small == again, "nothing is left to drop");
    }

    #[test]
    fn what_is_not_understood_stays() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let mut wild = own[..4096].to_vec();
        wild[32..40].fill(0xff);
        let cases: [&[u8]; 6] = [b"", b"#!/bin/sh\n", b"\x7fELF", &own[..60], &own[..4096], &wild];
        for case in cases {
            let mut bytes = case.to_vec();
            without_sections(&mut bytes);
            assert!(bytes == case, "{} bytes", case.len());
        }
    }
}
