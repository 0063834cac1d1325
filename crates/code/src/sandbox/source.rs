//! What is done to the code before it runs: imports of modules that the worker itself provides become
//! assignments, on the same lines and, where names stay, in the same columns.

use monty_types::ExcType;
use ruff_python_ast::{
    Expr, Stmt,
    visitor::{Visitor, walk_expr, walk_stmt},
};
use ruff_python_parser::parse_module;
use ruff_text_size::{Ranged, TextRange};

/// Modules whose import is replaced, and the global that stands for each.
const PROVIDED: [(&str, &str); 3] = [("asyncio", "_bub_asyncio"), ("republic", "republic"), ("tools", "tools")];

/// The code to compile, or where its error is that the interpreter would let pass. Code that does not parse comes
/// back as it is, so that the interpreter says what is wrong.
pub(super) fn prepare(code: &str) -> Result<String, Misplaced> {
    let Ok(parsed) = parse_module(code) else { return Ok(code.to_owned()) };
    let mut edits = Edits { code, found: Vec::new(), functions: 0, misplaced: None };
    for stmt in &parsed.syntax().body {
        edits.visit_stmt(stmt);
    }
    if let Some(range) = edits.misplaced {
        let before = code.get(..range.start().to_usize()).unwrap_or_default();
        return Err(Misplaced {
            line: u32::try_from(before.matches('\n').count()).unwrap_or(u32::MAX).saturating_add(1),
        });
    }
    let mut out = String::with_capacity(code.len() + 64);
    let mut at = 0;
    edits.found.sort_by_key(|(range, _)| range.start());
    for (range, replacement) in &edits.found {
        let (start, end) = (range.start().to_usize(), range.end().to_usize());
        out.push_str(code.get(at..start).unwrap_or_default());
        out.push_str(replacement);
        at = end;
    }
    out.push_str(code.get(at..).unwrap_or_default());
    // The value of a last expression is nobody's business: making one of it could run code of its own.
    out.push_str("\nNone");
    Ok(out)
}

/// A `return` outside of any function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced {
    pub(super) line: u32,
}

struct Edits<'a> {
    code: &'a str,
    found: Vec<(TextRange, String)>,
    functions: usize,
    misplaced: Option<TextRange>,
}

impl<'a> Visitor<'a> for Edits<'a> {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        match stmt {
            Stmt::Import(import) if import.names.iter().any(|alias| provided(&alias.name).is_some()) => {
                let mut parts = Vec::new();
                for alias in &import.names {
                    let name = alias.asname.as_ref();
                    parts.push(match provided(&alias.name) {
                        Some((global, path)) => {
                            // `import a.b` binds `a`, `import a.b as c` binds the submodule.
                            let bound =
                                name.map_or(alias.name.split('.').next().unwrap_or_default(), |name| name.as_str());
                            if name.is_none() { bind(bound, global) } else { bind(bound, &format!("{global}{path}")) }
                        }
                        None => match name {
                            Some(name) => format!("import {} as {name}", alias.name),
                            None => format!("import {}", alias.name),
                        },
                    });
                }
                self.replace(import.range, &parts);
            }
            Stmt::ImportFrom(import)
                if import.level == 0 && import.names.iter().all(|alias| alias.name.as_str() != "*") =>
            {
                if let Some((global, path)) = import.module.as_ref().and_then(|module| provided(module)) {
                    let parts: Vec<_> = import
                        .names
                        .iter()
                        .map(|alias| {
                            let bound = alias.asname.as_ref().unwrap_or(&alias.name);
                            bind(bound, &format!("{global}{path}.{}", alias.name))
                        })
                        .collect();
                    self.replace(import.range, &parts);
                }
            }
            Stmt::Delete(delete) if delete.targets.iter().all(is_item) => {
                let parts: Vec<_> = delete.targets.iter().filter_map(|target| self.pop(target)).collect();
                self.replace(delete.range, &parts);
            }
            Stmt::FunctionDef(_) => {
                self.functions += 1;
                walk_stmt(self, stmt);
                self.functions -= 1;
            }
            Stmt::Return(found) if self.functions == 0 => {
                self.misplaced.get_or_insert(found.range);
            }
            other => walk_stmt(self, other),
        }
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        if let Expr::Attribute(attribute) = expr
            && let Expr::Name(module) = &*attribute.value
            && module.id.as_str() == "sys"
            && attribute.attr.as_str() == "exit"
        {
            self.found.push((attribute.range, "exit    ".to_owned()));
            return;
        }
        if let Expr::Name(name) = expr
            && name.id.as_str() == "__name__"
        {
            // A global of the prelude, as long as the name that it stands for.
            self.found.push((name.range, "_bub_nam".to_owned()));
        }
        if let Expr::Call(call) = expr
            && let Expr::Name(name) = &*call.func
            && name.id.parse::<ExcType>().is_ok()
            && call.arguments.keywords.is_empty()
        {
            self.one_text(&call.arguments.args);
        }
        walk_expr(self, expr);
    }
}

impl Edits<'_> {
    /// Makes the arguments of an exception the one text that the interpreter wants.
    fn one_text(&mut self, args: &[Expr]) {
        let (open, close) = match args {
            [] | [Expr::StringLiteral(_) | Expr::FString(_)] => return,
            [_] => ("str(", ")"),
            _ => ("str((", "))"),
        };
        if let (Some(first), Some(last)) = (args.first(), args.last())
            && !args.iter().any(Expr::is_starred_expr)
        {
            self.found.push((TextRange::empty(first.start()), open.to_owned()));
            self.found.push((TextRange::empty(last.end()), close.to_owned()));
        }
    }

    /// `x[k]` to delete, as `x.pop(k)`.
    fn pop(&self, target: &Expr) -> Option<String> {
        let item = target.as_subscript_expr()?;
        let text = |range: TextRange| self.code.get(range.start().to_usize()..range.end().to_usize());
        let (value, key) = (text(item.value.range())?, text(item.slice.range())?);
        // A tuple in brackets needs its own parentheses as an argument.
        Some(if item.slice.is_tuple_expr() { format!("{value}.pop(({key}))") } else { format!("{value}.pop({key})") })
    }

    fn replace(&mut self, range: TextRange, parts: &[String]) {
        let mut text = parts.join(";");
        // Lines that the statement took stay, so that all below keep their numbers.
        let old = self.code.get(range.start().to_usize()..range.end().to_usize()).unwrap_or_default();
        for _ in 0..old.matches('\n').count().saturating_sub(text.matches('\n').count()) {
            text.push_str("\\\n");
        }
        self.found.push((range, text));
    }
}

/// Whether a target is an item with an expression as its key, all on one line.
fn is_item(target: &Expr) -> bool {
    target.as_subscript_expr().is_some_and(|item| !item.slice.is_slice_expr() && !item.value.is_number_literal_expr())
}

/// The global for a module and the path below it (`.decisions`), if the worker provides the module.
fn provided(module: &str) -> Option<(&'static str, String)> {
    let (root, path) =
        module.split_once('.').map_or((module, String::new()), |(root, rest)| (root, format!(".{rest}")));
    PROVIDED.iter().find(|(name, _)| *name == root).map(|(_, global)| (*global, path))
}

fn bind(name: &str, value: &str) -> String {
    if name == value { "pass".to_owned() } else { format!("{name}={value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &str) {
        assert_eq!(prepare(code), Ok(format!("{expected}\nNone")));
    }

    #[test]
    fn imports_of_provided_modules_become_assignments_on_the_same_lines() {
        check("import asyncio\nx", "asyncio=_bub_asyncio\nx");
        check("import asyncio as a, json", "a=_bub_asyncio;import json");
        check("if 1: import json, asyncio", "if 1: import json;asyncio=_bub_asyncio");
        check("from asyncio import gather as g, run", "g=_bub_asyncio.gather;run=_bub_asyncio.run");
        check(
            "from asyncio import (\n  gather,\n  run)\nx",
            "gather=_bub_asyncio.gather;run=_bub_asyncio.run\\\n\\\n\nx",
        );
        check("import republic", "pass");
        check("from republic.decisions import Noul", "Noul=republic.decisions.Noul");
        check("import republic.decisions as d", "d=republic.decisions");
        check("import json # import asyncio", "import json # import asyncio");
        check("'import asyncio'", "'import asyncio'");
    }

    #[test]
    fn exits_keep_their_columns() {
        check("import sys\nsys.exit(3)", "import sys\nexit    (3)");
        check("if __name__ == '__main__': x", "if _bub_nam == '__main__': x");
    }

    #[test]
    fn code_that_does_not_parse_is_left_alone() {
        assert_eq!(prepare("def ("), Ok("def (".to_owned()));
    }

    #[test]
    fn items_are_deleted_by_pop() {
        check("del d['a']", "d.pop('a')");
        check("if x: del d.e[f(1)], g[1, 2]", "if x: d.e.pop(f(1));g.pop((1, 2))");
        check("del x", "del x");
        check("del x[1:]", "del x[1:]");
    }

    #[test]
    fn exceptions_get_one_text() {
        check("raise SystemExit(3)", "raise SystemExit(str(3))");
        check("raise ValueError('a')", "raise ValueError('a')");
        check("raise ValueError(f'a')", "raise ValueError(f'a')");
        check("raise ValueError('a', ValueError(1))", "raise ValueError(str(('a', ValueError(str(1)))))");
        check("raise ValueError(*x)", "raise ValueError(*x)");
        check("e = KeyError(k) if k else Foo(3)", "e = KeyError(str(k)) if k else Foo(3)");
    }

    #[test]
    fn return_outside_a_function_is_found() {
        assert_eq!(prepare("x = 1\nif x:\n  return 1"), Err(Misplaced { line: 3 }));
        assert!(prepare("def f():\n  return 1\nasync def g():\n  if 1: return").is_ok());
    }
}
