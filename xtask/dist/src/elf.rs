//! What the header of a 64-bit, little-endian ELF program says.

use anyhow::{Context, Result, bail};

/// `e_machine` of x86-64.
pub(crate) const X86_64: u16 = 62;
/// `e_machine` of 64-bit ARM.
pub(crate) const AARCH64: u16 = 183;

/// `p_type` of the segment that names the program which loads shared libraries.
const INTERPRETER: u32 = 3;

/// Checks that a program is for this processor and needs no shared library.
pub(crate) fn check(bytes: &[u8], machine: u16) -> Result<()> {
    if bytes.get(..6) != Some(b"\x7fELF\x02\x01") {
        bail!("it is no 64-bit, little-endian ELF program");
    }
    let found = number(bytes, 18, 2)?;
    if found != u64::from(machine) {
        bail!("it is for the processor {found} and not for {machine}");
    }
    let (start, size, count) =
        (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
    for index in 0..count {
        let at = start.checked_add(index * size).context("a wrong table of segments")?;
        if number(bytes, at, 4)? == u64::from(INTERPRETER) {
            bail!("it is linked dynamically");
        }
    }
    Ok(())
}

fn number(bytes: &[u8], at: u64, width: usize) -> Result<u64> {
    let at = usize::try_from(at)?;
    let field = at.checked_add(width).and_then(|end| bytes.get(at..end));
    let field = field.context("the header is cut off")?;
    Ok(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u16, kinds: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = kinds.len() as u8;
        for kind in kinds {
            bytes.extend(kind.to_le_bytes());
            bytes.extend([0; 52]);
        }
        bytes
    }

    #[test]
    fn a_static_program_of_this_processor_passes_and_no_other() {
        check(&program(X86_64, &[1, 2, 6]), X86_64).unwrap();
        let refused = |bytes: &[u8]| check(bytes, X86_64).unwrap_err().to_string();
        assert!(refused(&program(X86_64, &[1, 3])).contains("dynamically"));
        assert!(refused(&program(AARCH64, &[1])).contains("processor"));
        assert!(refused(b"#!/bin/sh\n").contains("no 64-bit"));
        assert!(refused(&program(X86_64, &[1, 1])[..100]).contains("cut off"));
    }

    #[test]
    fn a_test_is_linked_dynamically() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let machine = if cfg!(target_arch = "x86_64") { X86_64 } else { AARCH64 };
        let refused = check(&own, machine).unwrap_err();
        assert!(refused.to_string().contains("dynamically"), "{refused}");
    }
}
