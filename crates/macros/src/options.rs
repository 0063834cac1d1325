//! What stands in the parentheses of `#[tool(…)]`.

use proc_macro2::Span;
use syn::{
    Error, Expr, Ident, LitBool, LitStr, Path, Result, Token,
    ext::IdentExt as _,
    parse::{Parse, ParseStream},
};

/// The longest name that model providers take.
const MAX_NAME_CHARS: usize = 64;

const KNOWN: &str = "a tool has the options `name = \"…\"`, `description = \"…\"`, `exposure = \"…\"`, `deferred`, \
                     `renderer = …` and `crate = …`";

/// The options of one tool.
#[derive(Default)]
pub(crate) struct Options {
    /// The name, if it is not the function's.
    pub(crate) name: Option<LitStr>,
    /// The description, if it is not the doc comment.
    pub(crate) description: Option<LitStr>,
    /// The variant of `Exposure`.
    pub(crate) exposure: Option<Ident>,
    /// Whether the definition is loaded on demand.
    pub(crate) deferred: bool,
    /// Makes the text that the model reads.
    pub(crate) renderer: Option<Expr>,
    /// Where the kernel is.
    pub(crate) kernel: Option<Path>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            if input.peek(LitStr) {
                let name: LitStr = input.parse()?;
                return Err(Error::new(name.span(), format!("write `name = \"{}\"`", name.value())));
            }
            let key = input.call(Ident::parse_any).map_err(|err| Error::new(err.span(), KNOWN))?;
            if seen.contains(&key.to_string()) {
                return Err(Error::new(key.span(), format!("`{key}` stands here twice")));
            }
            seen.push(key.to_string());
            options.read(&key, input)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

impl Options {
    fn read(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        match key.to_string().as_str() {
            "name" => {
                let name = text(key, input)?;
                check_name(&name.value()).map_err(|problem| Error::new(name.span(), problem))?;
                self.name = Some(name);
            }
            "description" => self.description = Some(text(key, input)?),
            "exposure" => self.exposure = Some(exposure(&text(key, input)?)?),
            "deferred" => {
                self.deferred = true;
                if input.peek(Token![=]) {
                    input.parse::<Token![=]>()?;
                    self.deferred = input.parse::<LitBool>()?.value;
                }
            }
            "renderer" => {
                expect_equals(key, input, "|output| format!(…)")?;
                self.renderer = Some(input.parse()?);
            }
            "crate" => {
                expect_equals(key, input, "::bub_kernel")?;
                self.kernel = Some(input.call(Path::parse_mod_style)?);
            }
            "context" => {
                let advice = "a tool gets its context by a parameter of the type `&ToolContext`; there is no option";
                return Err(Error::new(key.span(), advice));
            }
            _ => return Err(Error::new(key.span(), format!("unknown option `{key}`: {KNOWN}"))),
        }
        Ok(())
    }
}

fn expect_equals(key: &Ident, input: ParseStream<'_>, example: &str) -> Result<()> {
    let parsed = input.parse::<Token![=]>();
    parsed.map(drop).map_err(|_| Error::new(key.span(), format!("write `{key} = {example}`")))
}

fn text(key: &Ident, input: ParseStream<'_>) -> Result<LitStr> {
    expect_equals(key, input, "\"…\"")?;
    let span = input.span();
    input.parse().map_err(|_| Error::new(span, format!("write `{key} = \"…\"`, with a text in quotes")))
}

/// The variant that an exposure's name stands for.
fn exposure(name: &LitStr) -> Result<Ident> {
    let variant = match name.value().as_str() {
        "auto" => "Auto",
        "direct" => "Direct",
        "code" => "Code",
        "command" => "Command",
        other => {
            let problem = format!("unknown exposure '{other}': expected \"auto\", \"direct\", \"code\" or \"command\"");
            return Err(Error::new(name.span(), problem));
        }
    };
    Ok(Ident::new(variant, Span::call_site()))
}

/// Whether a name can be typed as a command, and be sent to a model with `_` for `.`.
pub(crate) fn check_name(name: &str) -> std::result::Result<(), String> {
    let fits = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.');
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(fits) {
        let rule =
            format!("a tool's name has 1 to {MAX_NAME_CHARS} letters, digits, `_`, `-` and `.`, such as `math.add`");
        return Err(format!("'{name}' can't be the name of a tool: {rule}"));
    }
    Ok(())
}
