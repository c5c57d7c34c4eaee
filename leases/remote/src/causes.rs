use std::{error::Error, fmt};

/// The text of an error and its causes, from the outermost to the innermost, separated by colons. It is for errors
/// whose own text must explain a failure even where no sources are printed. A cause that the text before it already
/// contains is left out.
///
/// # Examples
/// ```
/// use std::io;
///
/// use keylatch_lease_remote::Causes;
///
/// let cause = io::Error::other(io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens"));
/// assert_eq!(Causes(&cause).to_string(), "nobody listens");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Causes<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        f.write_str(&told)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !told.contains(&text) {
                write!(f, ": {text}")?;
                told = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Told>>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn told(texts: &[&'static str]) -> String {
        let error = texts.iter().rev().fold(None, |cause, text| Some(Box::new(Told(text, cause))));
        Causes(&*error.unwrap()).to_string()
    }

    #[test]
    fn each_cause_is_written_once_from_the_outermost_to_the_innermost() {
        assert_eq!(told(&["db error"]), "db error");
        assert_eq!(told(&["db error", "FATAL: no such role", "28000"]), "db error: FATAL: no such role: 28000");
        assert_eq!(told(&["refused: by the server", "by the server", "code 7"]), "refused: by the server: code 7");
    }
}
