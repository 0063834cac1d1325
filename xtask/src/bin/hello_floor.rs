//! The floor of a start: the least a Rust program can do and still say something.

#![expect(clippy::print_stdout, reason = "printing is all that it does")]

fn main() {
    println!("hello");
}
