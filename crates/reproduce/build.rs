//! Embeds the folders of `experiments/` in the program: their tables and scenarios, not the plots.

use std::fmt::Write as _;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manifest = std::env::var("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&manifest).join("../../experiments");
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
            if [".toml", ".csv", ".txt"].iter().any(|end| base.ends_with(end)) {
                println!("cargo:rerun-if-changed={}", file.display());
                let path = file.canonicalize()?;
                let key = format!("{name}/{base}");
                writeln!(files, "    ({key:?}, include_str!({:?})),", path.display().to_string())?;
            }
        }
    }
    let text = format!(
        "/// Names of the folders.\npub(super) const NAMES: &[&str] = &{names:?};\n\
         /// `folder/file`, and what is in it.\n\
         pub(super) const FILES: &[(&str, &str)] = &[\n{files}];\n"
    );
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("experiments.rs"), text)?;
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
