//! The parameters of the function: what the schema shows of them, and what the call passes.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, Ident, Lit, LitStr, Pat, PatType, Result, Signature, Token, Type,
    ext::IdentExt as _, parse::ParseStream, spanned::Spanned as _,
};

const KNOWN: &str = "a parameter has the options `default`, `default = …`, `name = \"…\"` and `description = \"…\"`";

/// One parameter of the function.
pub(crate) enum Parameter {
    /// The context of the call, which is no argument.
    Context {
        /// Whether the function takes it by reference.
        by_reference: bool,
    },
    /// An argument.
    Argument(Box<Argument>),
}

/// A parameter that callers give.
pub(crate) struct Argument {
    ident: Ident,
    kind: Type,
    /// Doc comments, and attributes for serde and schemars.
    attributes: Vec<Attribute>,
    default: Option<Default>,
    name: Option<LitStr>,
    description: Option<LitStr>,
}

/// What an argument is when it is not given.
enum Default {
    /// The type's own default.
    OfType(Span),
    /// A value.
    Value(Expr),
}

/// Reads the parameters of a function, and takes out of it the attributes that the compiler does not know.
pub(crate) fn read(signature: &mut Signature) -> Result<Vec<Parameter>> {
    let mut parameters = Vec::new();
    let mut problems = Problems::default();
    let mut has_context = false;
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(it) => problems.add(Error::new(
                it.span(),
                "a tool is made of a function of its own: take `self` out, or implement the trait `Tool` for the type",
            )),
            FnArg::Typed(it) => match parameter(it) {
                Ok(Parameter::Context { .. }) if has_context => {
                    problems.add(Error::new(it.ty.span(), "a tool gets one context"));
                }
                Ok(parameter) => {
                    has_context |= matches!(parameter, Parameter::Context { .. });
                    parameters.push(parameter);
                }
                Err(err) => problems.add(err),
            },
        }
    }
    problems.none_or().map(|()| parameters)
}

/// Problems, all of which are told.
#[derive(Default)]
pub(crate) struct Problems(Option<Error>);

impl Problems {
    pub(crate) fn add(&mut self, problem: Error) {
        match &mut self.0 {
            Some(all) => all.combine(problem),
            None => self.0 = Some(problem),
        }
    }

    pub(crate) fn none_or(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

fn parameter(input: &mut PatType) -> Result<Parameter> {
    let attributes = std::mem::take(&mut input.attrs);
    let (ours, theirs): (Vec<_>, Vec<_>) = attributes.into_iter().partition(is_for_schema);
    input.attrs = theirs;
    if let Some(by_reference) = context(&input.ty) {
        return match ours.first() {
            Some(it) => Err(Error::new(it.span(), "the context is no argument: nothing is told about it")),
            None => Ok(Parameter::Context { by_reference }),
        };
    }
    if let Some(other) = input.attrs.iter().find(|it| !is_lint(it)) {
        return Err(Error::new(other.span(), format!("this attribute has no meaning here: {KNOWN}")));
    }
    let Pat::Ident(pattern) = &*input.pat else {
        return Err(Error::new(input.pat.span(), "give the parameter a name: the model fills it in by that name"));
    };
    check_type(&input.ty)?;
    let mut argument = Argument {
        ident: pattern.ident.clone(),
        kind: (*input.ty).clone(),
        attributes: Vec::new(),
        default: None,
        name: None,
        description: None,
    };
    for attribute in ours {
        if attribute.path().is_ident("arg") {
            attribute.parse_args_with(|input: ParseStream<'_>| argument.read(input))?;
        } else {
            argument.attributes.push(attribute);
        }
    }
    Ok(Parameter::Argument(Box::new(argument)))
}

fn is_for_schema(attribute: &Attribute) -> bool {
    ["arg", "doc", "serde", "schemars"].iter().any(|it| attribute.path().is_ident(it))
}

fn is_lint(attribute: &Attribute) -> bool {
    ["allow", "expect", "warn", "deny", "forbid"].iter().any(|it| attribute.path().is_ident(it))
}

/// Whether a type is the context, and whether by reference.
fn context(kind: &Type) -> Option<bool> {
    match kind {
        Type::Reference(it) => context(&it.elem).map(|_| true),
        Type::Path(it) => (it.path.segments.last()?.ident == "ToolContext").then_some(false),
        Type::Paren(it) => context(&it.elem),
        Type::Group(it) => context(&it.elem),
        _ => None,
    }
}

/// Arguments are made of JSON, so they own what they hold.
fn check_type(kind: &Type) -> Result<()> {
    if let Type::ImplTrait(it) = kind {
        return Err(Error::new(it.span(), "name the type: its schema is made of it"));
    }
    if let Type::Reference(it) = kind {
        let inner = &it.elem;
        let advice = match quote!(#inner).to_string().as_str() {
            "str" => "take a `String`".to_owned(),
            "Path" => "take a `PathBuf`".to_owned(),
            slice if slice.starts_with('[') => "take a `Vec`".to_owned(),
            other => format!("take `{other}` by value"),
        };
        return Err(Error::new(it.span(), format!("an argument is made of JSON and can't be borrowed: {advice}")));
    }
    if borrows(quote!(#kind)) {
        let advice = "an argument is made of JSON and can't borrow: take types that own what they hold";
        return Err(Error::new(kind.span(), advice));
    }
    Ok(())
}

fn borrows(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|it| match it {
        TokenTree::Punct(it) => it.as_char() == '&' || it.as_char() == '\'',
        TokenTree::Group(it) => borrows(it.stream()),
        _ => false,
    })
}

impl Argument {
    /// Reads what stands in the parentheses of `#[arg(…)]`.
    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        while !input.is_empty() {
            let key = input.call(Ident::parse_any).map_err(|err| Error::new(err.span(), KNOWN))?;
            let has_value = input.peek(Token![=]);
            if has_value {
                input.parse::<Token![=]>()?;
            }
            let is_again = match (key.to_string().as_str(), has_value) {
                ("default", false) => self.default.replace(Default::OfType(key.span())).is_some(),
                ("default", true) => self.default.replace(Default::Value(input.parse()?)).is_some(),
                ("name", true) => self.name.replace(input.parse()?).is_some(),
                ("description", true) => self.description.replace(input.parse()?).is_some(),
                ("name" | "description", false) => {
                    return Err(Error::new(key.span(), format!("write `{key} = \"…\"`")));
                }
                _ => return Err(Error::new(key.span(), format!("unknown option `{key}`: {KNOWN}"))),
            };
            if is_again {
                return Err(Error::new(key.span(), format!("`{key}` stands here twice")));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    /// The name of the function that makes the default.
    fn default_function(&self) -> Ident {
        format_ident!("__default_{}", self.ident.unraw())
    }

    /// The function that makes the default, if there is one.
    pub(crate) fn default(&self) -> Option<TokenStream> {
        let (function, kind) = (self.default_function(), &self.kind);
        let value = match self.default.as_ref()? {
            Default::OfType(span) => quote_spanned!(*span=> ::core::default::Default::default()),
            // A text in quotes is given where a `String` or an enum of texts is meant.
            Default::Value(value @ Expr::Lit(ExprLit { lit: Lit::Str(_), .. })) => {
                quote_spanned!(value.span()=> ::core::convert::Into::into(#value))
            }
            Default::Value(value) => quote!(#value),
        };
        Some(quote! {
            fn #function() -> #kind {
                #value
            }
        })
    }

    /// The field of the struct of arguments.
    pub(crate) fn field(&self) -> TokenStream {
        let Self { ident, kind, attributes, name, description, .. } = self;
        let default = self.default.as_ref().map(|_| {
            let function = self.default_function().to_string();
            quote!(#[serde(default = #function)])
        });
        let name = name.as_ref().map(|it| quote!(#[serde(rename = #it)]));
        let description = description.as_ref().map(|it| quote!(#[schemars(description = #it)]));
        quote! {
            #(#attributes)*
            #default
            #name
            #description
            #ident: #kind
        }
    }

    /// Its name in the function.
    pub(crate) fn ident(&self) -> &Ident {
        &self.ident
    }
}
