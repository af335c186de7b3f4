//! Embeds the folders of `experiments/` in the program, compressed: what `Experiment::read` reads of
//! them, that is scenarios and the tables of numbers, and neither plots nor recordings.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

const TABLES: [&str; 3] = ["paper.csv", "expected.csv", "spread.csv"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manifest = std::env::var("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&manifest).join("../../experiments");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", root.display());
    let mut names = Vec::new();
    let mut files = String::new();
    for folder in sorted(&root)? {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !folder.join("experiment.toml").is_file() {
            continue;
        }
        names.push(name.to_owned());
        for file in sorted(&folder)? {
            let Some(base) = file.file_name().and_then(|name| name.to_str()) else { continue };
            if base.ends_with(".toml") || TABLES.contains(&base) {
                println!("cargo:rerun-if-changed={}", file.display());
                let key = format!("{name}/{base}");
                let text = std::fs::read_to_string(&file)?;
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
                encoder.write_all(text.as_bytes())?;
                let path = out.join(format!("{name}-{base}.z"));
                std::fs::write(&path, encoder.finish()?)?;
                writeln!(
                    files,
                    "    ({key:?}, include_bytes!({:?})),",
                    path.display().to_string()
                )?;
            }
        }
    }
    let text = format!(
        "/// Names of the folders.\npub(super) const NAMES: &[&str] = &{names:?};\n\
         /// `folder/file`, and what is in it, compressed.\n\
         const FILES: &[(&str, &[u8])] = &[\n{files}];\n"
    );
    std::fs::write(out.join("experiments.rs"), text)?;
    Ok(())
}

/// The names in a folder, sorted; none if the folder does not exist.
fn sorted(dir: &Path) -> std::io::Result<Vec<std::path::PathBuf>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let entries: Result<Vec<_>, _> = std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect();
    entries.map(|mut paths| {
        paths.sort();
        paths
    })
}
