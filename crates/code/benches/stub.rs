//! How long it takes to write the tools down as Python: the bar is 20 ms for 300 tools.

use std::sync::Arc;

use bub_code::stub;
use bub_kernel::tool::{Exposure, ToolSpec};
use serde_json::json;

fn main() {
    divan::main();
}

fn tools(n: usize) -> Vec<Arc<ToolSpec>> {
    let tool = |idx: usize| ToolSpec {
        name: format!("family{}.verb_{idx}", idx % 20).into(),
        description: "Does something with a thing.\n\nAnd says how it went.".to_owned(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters: json!({
            "properties": {
                "path": {"type": "string", "description": "Which file."},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null},
                "options": {"type": "object", "title": "Options", "properties": {
                    "depth": {"type": "integer", "default": 1},
                    "mode": {"enum": ["fast", "exact"]},
                }},
            },
            "required": ["path"],
        }),
        output: Some(
            json!({"type": "object", "properties": {"items": {"type": "array", "items": {
                "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
            }}}})
            .into(),
        ),
    };
    (0..n).map(|idx| Arc::new(tool(idx))).collect()
}

#[divan::bench(args = [10, 300])]
fn render(bencher: divan::Bencher<'_, '_>, n: usize) {
    let tools = tools(n);
    bencher.bench(|| stub::render_within(&tools, usize::MAX));
}

#[divan::bench]
fn write_again(bencher: divan::Bencher<'_, '_>) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let text = stub::render(&tools(300));
    bencher.bench(|| stub::write(folder.path(), &text));
}
