//! `bub tape export`.

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context as _, Result};
use bub::{
    host::{ScanFilter, ScannedEntry},
    kernel::{tape::TapeName, text::thousands},
};

use super::{markdown::Markdown, progress::Progress, shelf::Shelf, when};
use crate::{
    args::{ExportArgs, Format},
    output,
    terminal::safe::{safe, safe_json},
};

/// Writes the entries of a tape in another form.
pub(super) fn run(shelf: &Shelf, args: &ExportArgs) -> Result<ExitCode> {
    let name = shelf.find_to_read(&args.tape.session)?;
    let filter = when::filter(&args.filter, args.at.as_deref(), &shelf.zone())?;
    let Some(path) = &args.output else {
        write(shelf, &name, filter, args, &mut Console { is_terminal: output::is_terminal(), format: args.format })?;
        return Ok(ExitCode::SUCCESS);
    };
    // A link stays one: what it leads to is replaced.
    let path = path.canonicalize().unwrap_or_else(|_| path.clone());
    let dir = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let n_entries = (|| -> Result<u64> {
        let file = tempfile::Builder::new().prefix(".bub-export.").suffix(".tmp").tempfile_in(dir)?;
        let mut out = BufWriter::new(file);
        let n_entries = write(shelf, &name, filter, args, &mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|err| err.error)?;
        Ok(n_entries)
    })()
    .with_context(|| format!("cannot write {}", path.display()))?;
    output::note(&format!("{} entries written to {}", thousands(n_entries), path.display()));
    Ok(ExitCode::SUCCESS)
}

fn write(shelf: &Shelf, name: &TapeName, filter: ScanFilter, args: &ExportArgs, out: &mut impl Write) -> Result<u64> {
    let mut scan = shelf.store().scan(name, filter);
    let is_shown = args.output.is_none() && output::is_terminal();
    let mut progress = Progress::new("exporting");
    let mut markdown = Markdown::new(&args.tape.session, shelf.zone());
    let mut n_entries = 0;
    loop {
        let step = scan.step()?;
        if is_shown && !step.entries.is_empty() {
            progress.clear();
        }
        let mut text = Vec::new();
        for it in &step.entries {
            write_entry(it, args.format, n_entries == 0, &mut markdown, &mut text);
            n_entries += 1;
        }
        out.write_all(&text)?;
        if step.is_at_end {
            break;
        }
        progress.at(step.position, step.len);
    }
    progress.clear();
    match args.format {
        Format::Json if n_entries == 0 => out.write_all(b"[]\n")?,
        Format::Json => out.write_all(b"\n]\n")?,
        Format::Markdown => out.write_all(markdown.end().as_bytes())?,
        Format::Jsonl => {}
    }
    out.flush()?;
    Ok(n_entries)
}

fn write_entry(it: &ScannedEntry, format: Format, is_first: bool, markdown: &mut Markdown, text: &mut Vec<u8>) {
    match format {
        Format::Jsonl => {
            text.extend_from_slice(&it.line);
            text.push(b'\n');
        }
        Format::Json => {
            text.extend_from_slice(if is_first { b"[\n" } else { b",\n" });
            text.extend_from_slice(it.entry.to_line().as_bytes());
        }
        Format::Markdown => text.extend_from_slice(markdown.entry(&it.entry).as_bytes()),
    }
}

/// Standard output; on a terminal nothing goes there that could drive it.
struct Console {
    is_terminal: bool,
    format: Format,
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        output::out(&match self.format {
            _ if !self.is_terminal => text,
            Format::Markdown => safe(&text),
            Format::Jsonl | Format::Json => safe_json(&text),
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
