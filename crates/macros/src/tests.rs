//! What the author of a tool is told when it can't be one. The texts are looked at here, without a
//! compiler: tools that work are tested where they run, in the kernel.

use proc_macro2::TokenStream;

use crate::expand::{snake_case, tool};

/// All errors in an expansion, in order.
fn errors(options: &str, function: &str) -> Vec<String> {
    let expanded = tool(tokens(options), tokens(function), "::bub_kernel");
    let file: syn::File = syn::parse2(expanded).unwrap();
    file.items
        .iter()
        .filter_map(|it| match it {
            syn::Item::Macro(it) if it.mac.path.segments.last().unwrap().ident == "compile_error" => {
                Some(it.mac.parse_body::<syn::LitStr>().unwrap().value())
            }
            _ => None,
        })
        .collect()
}

fn tokens(text: &str) -> TokenStream {
    text.parse().unwrap()
}

fn refused(options: &str, function: &str, expected: &str) {
    assert_eq!(errors(options, function), [expected], "#[tool({options})] {function}");
}

const PLAIN: &str = "fn f(a: i64) -> i64 { a }";

#[test]
fn what_is_no_tool_is_refused_with_what_to_do() {
    for (function, expected) in [
        (
            "fn f(&self) {}",
            "a tool is made of a function of its own: take `self` out, or implement the trait `Tool` for the type",
        ),
        ("fn f<T>(a: T) {}", "a tool has one schema, so its function has no generics: name the types"),
        ("fn f<'a>(a: i64) {}", "a tool has one schema, so its function has no generics: name the types"),
        ("unsafe fn f() {}", "models call tools: their function can't be unsafe"),
        ("fn f(a: &str) {}", "an argument is made of JSON and can't be borrowed: take a `String`"),
        ("fn f(a: &[u8]) {}", "an argument is made of JSON and can't be borrowed: take a `Vec`"),
        ("fn f(a: &Path) {}", "an argument is made of JSON and can't be borrowed: take a `PathBuf`"),
        ("fn f(a: &mut Order) {}", "an argument is made of JSON and can't be borrowed: take `Order` by value"),
        (
            "fn f(a: Option<&str>) {}",
            "an argument is made of JSON and can't borrow: take types that own what they hold",
        ),
        (
            "fn f(a: Cow<'static, str>) {}",
            "an argument is made of JSON and can't borrow: take types that own what they hold",
        ),
        ("fn f(a: impl Into<String>) {}", "name the type: its schema is made of it"),
        ("fn f() -> impl Iterator<Item = u8> {}", "name the type that is returned: its schema is made of it"),
        ("fn f((a, b): (u8, u8)) {}", "give the parameter a name: the model fills it in by that name"),
        ("fn f(_: u8) {}", "give the parameter a name: the model fills it in by that name"),
        ("fn f(a: &ToolContext, b: ToolContext) {}", "a tool gets one context"),
        ("fn f(#[doc = \"x\"] ctx: &ToolContext) {}", "the context is no argument: nothing is told about it"),
        ("struct Tool;", "`#[tool]` stands before a function with a body"),
        ("fn f();", "`#[tool]` stands before a function with a body"),
    ] {
        refused("", function, expected);
    }
}

#[test]
fn options_that_do_not_exist_are_refused_with_those_that_do() {
    let known = "a tool has the options `name = \"…\"`, `description = \"…\"`, `exposure = \"…\"`, `deferred`, \
                 `renderer = …` and `crate = …`";
    for (options, expected) in [
        ("nmae = \"x\"", &*format!("unknown option `nmae`: {known}")),
        ("5", known),
        ("\"math.add\"", "write `name = \"math.add\"`"),
        ("name", "write `name = \"…\"`"),
        ("name = add", "write `name = \"…\"`, with a text in quotes"),
        ("name = \"a\", name = \"b\"", "`name` stands here twice"),
        ("exposure = \"dircet\"", "unknown exposure 'dircet': expected \"auto\", \"direct\", \"code\" or \"command\""),
        ("exposure = Direct", "write `exposure = \"…\"`, with a text in quotes"),
        ("context = true", "a tool gets its context by a parameter of the type `&ToolContext`; there is no option"),
        ("renderer", "write `renderer = |output| format!(…)`"),
        ("deferred = \"yes\"", "expected boolean literal"),
        (
            "name = \"math add\"",
            "'math add' can't be the name of a tool: a tool's name has 1 to 64 letters, digits, `_`, `-` and `.`, \
             such as `math.add`",
        ),
    ] {
        refused(options, PLAIN, expected);
    }
    assert_eq!(errors(&format!("name = \"{}\"", "x".repeat(65)), PLAIN).len(), 1);
    assert_eq!(errors("", "fn größe() {}").len(), 1);
    assert!(errors("name = \"groesse\"", "fn größe() {}").is_empty());
}

#[test]
fn options_of_parameters_are_read_as_strictly() {
    let known = "a parameter has the options `default`, `default = …`, `name = \"…\"` and `description = \"…\"`";
    for (attribute, expected) in [
        ("#[arg(defualt = 1)]", &*format!("unknown option `defualt`: {known}")),
        ("#[arg(name)]", "write `name = \"…\"`"),
        ("#[arg(default, default = 1)]", "`default` stands here twice"),
        ("#[default = 5]", &*format!("this attribute has no meaning here: {known}")),
        ("#[cfg(unix)]", &*format!("this attribute has no meaning here: {known}")),
    ] {
        refused("", &format!("fn f({attribute} a: i64) {{}}"), expected);
    }
    assert!(errors("", "fn f(#[allow(unused)] #[arg(default = 1, name = \"x\")] a: i64) {}").is_empty());
}

#[test]
fn all_problems_of_the_parameters_are_told_at_once() {
    assert_eq!(errors("", "fn f(a: &str, (b, c): (u8, u8), d: &[u8]) {}").len(), 3);
}

#[test]
fn a_refused_function_is_kept_so_that_nothing_else_is_said() {
    let expanded = tool(tokens("exposure = \"x\""), tokens("fn f(#[arg(default = 1)] a: i64) {}"), "::k").to_string();
    assert!(expanded.starts_with("fn f (a : i64) { }"), "{expanded}");
}

#[test]
fn the_kernel_is_found_where_it_is_said_to_be() {
    let expand = |options: &str| tool(tokens(options), tokens(PLAIN), "::bub::kernel").to_string();
    assert!(expand("").contains(":: bub :: kernel :: tool :: erase"));
    let own = expand("crate = my::own");
    assert!(own.contains("my :: own :: tool :: erase") && !own.contains("bub"), "{own}");
}

#[test]
fn names_become_snake_case() {
    for (name, expected) in [
        ("add", "add"),
        ("getHTTPThing", "get_h_t_t_p_thing"),
        ("Add", "add"),
        ("_private", "private"),
        ("a1_b", "a1_b"),
    ] {
        assert_eq!(snake_case(name), expected);
    }
}
