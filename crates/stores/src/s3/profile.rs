//! Credentials and endpoint, from the environment and the files that the AWS programs read.

use std::collections::HashMap;
use std::path::PathBuf;

use packtrain_transfer::{Failure, FailureKind};
use rusty_s3::Credentials;

/// Maximum bytes of a settings file; a larger file is ignored.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The settings for S3.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) credentials: Option<Credentials>,
    pub(crate) region: Option<String>,
    /// The address of the store; none for AWS.
    pub(crate) endpoint: Option<String>,
}

type Sections = HashMap<String, HashMap<String, String>>;

impl Settings {
    /// The settings of the environment and the files. The environment takes precedence.
    pub(crate) fn find() -> Result<Self, Failure> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let file = |name: &str, usual: &str| {
            let path = env(name).map(PathBuf::from);
            let path = path.or_else(|| Some(home.clone()?.join(".aws").join(usual)))?;
            let size = std::fs::metadata(&path).ok()?.len();
            if size > MAX_FILE_BYTES { None } else { std::fs::read_to_string(path).ok() }
        };
        let secrets = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
        Self::from_all(&env, &secrets, &config)
    }

    pub(crate) fn from_all(
        env: &dyn Fn(&str) -> Option<String>,
        secrets: &str,
        config: &str,
    ) -> Result<Self, Failure> {
        let asked = env("AWS_PROFILE").or_else(|| env("AWS_DEFAULT_PROFILE"));
        let profile = asked.clone().unwrap_or_else(|| "default".to_owned());
        let (secrets, config) = (sections(secrets), sections(config));
        let of_config = if profile == "default" {
            config.get("default").or_else(|| config.get("profile default"))
        } else {
            config.get(&format!("profile {profile}"))
        };
        let of_secrets = secrets.get(&profile);
        if let (Some(asked), None, None) = (asked, of_secrets, of_config) {
            let text = format!("AWS_PROFILE names {asked}, which neither file of AWS's has");
            return Err(Failure::new(FailureKind::Usage, text));
        }
        let key = |name: &str| {
            let found = of_secrets.and_then(|s| s.get(name));
            found.or_else(|| of_config.and_then(|s| s.get(name))).cloned()
        };
        let from_env =
            trio(env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY"), env("AWS_SESSION_TOKEN"))?;
        let credentials = match from_env {
            Some(credentials) => Some(credentials),
            None => trio(
                key("aws_access_key_id"),
                key("aws_secret_access_key"),
                key("aws_session_token"),
            )?,
        };
        let config = |name: &str| of_config.and_then(|s| s.get(name)).cloned();
        let endpoint = env("AWS_ENDPOINT_URL_S3").or_else(|| env("AWS_ENDPOINT_URL"));
        let ignored = env("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|v| v == "true");
        Ok(Self {
            credentials,
            region: env("AWS_REGION")
                .or_else(|| env("AWS_DEFAULT_REGION"))
                .or_else(|| config("region")),
            endpoint: if ignored { None } else { endpoint.or_else(|| config("endpoint_url")) },
        })
    }
}

fn trio(
    id: Option<String>,
    secret: Option<String>,
    token: Option<String>,
) -> Result<Option<Credentials>, Failure> {
    match (id, secret, token) {
        (Some(id), Some(secret), Some(token)) => {
            Ok(Some(Credentials::new_with_token(id, secret, token)))
        }
        (Some(id), Some(secret), None) => Ok(Some(Credentials::new(id, secret))),
        (None, None, _) => Ok(None),
        _ => {
            let text = "of the access key and its secret only one is set: set both, or neither";
            Err(Failure::new(FailureKind::Usage, text))
        }
    }
}

/// Parses sections of `name = value` lines. Indented lines belong to the line before and are
/// ignored.
fn sections(text: &str) -> Sections {
    let mut all = Sections::new();
    let mut name = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(inner) = trimmed.strip_prefix('[') {
            let inner = inner.split(']').next().unwrap_or_default();
            name = inner.split_whitespace().collect::<Vec<_>>().join(" ");
        } else if !line.starts_with([' ', '\t'])
            && let Some((key, value)) = trimmed.split_once('=')
        {
            let section = all.entry(name.clone()).or_default();
            section.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: &str = "[default]\naws_access_key_id = A\naws_secret_access_key=a=b\n\n\
                           [ other ]\naws_access_key_id=B\naws_secret_access_key=b\n\
                           aws_session_token=t\n";
    const CONFIG: &str = "# a comment\n[default]\nregion = eu-1\n[profile other]\n\
                          endpoint_url = http://here:9000\ns3 =\n  endpoint_url = http://not\n";

    fn found(pairs: &[(&str, &str)]) -> Result<Settings, Failure> {
        let env = |name: &str| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        Settings::from_all(&env, SECRETS, CONFIG)
    }

    #[test]
    fn the_environment_comes_before_the_files() {
        let plain = found(&[]).unwrap();
        assert_eq!(plain.credentials, Some(Credentials::new("A", "a=b")));
        assert_eq!((plain.region.as_deref(), plain.endpoint), (Some("eu-1"), None));
        let other = found(&[("AWS_PROFILE", "other")]).unwrap();
        assert_eq!(other.credentials, Some(Credentials::new_with_token("B", "b", "t")));
        assert_eq!(other.endpoint.as_deref(), Some("http://here:9000"));
        let env = [
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "e"),
            ("AWS_REGION", "x"),
            ("AWS_ENDPOINT_URL", "http://all"),
            ("AWS_ENDPOINT_URL_S3", "http://s3"),
        ];
        let env = found(&env).unwrap();
        assert_eq!(env.credentials, Some(Credentials::new("E", "e")));
        assert_eq!(env.region.as_deref(), Some("x"));
        assert_eq!(env.endpoint.as_deref(), Some("http://s3"));
    }

    #[test]
    fn half_of_a_key_and_no_profile_are_mistakes() {
        assert!(found(&[("AWS_ACCESS_KEY_ID", "E")]).is_err());
        assert!(found(&[("AWS_PROFILE", "nobody")]).is_err());
    }
}
