//! Formulas over the results of a run: `goodput_bps / 1e6`, `goodput_bps * {link.wan.rtt} *
//! sqrt({link.wan.loss}) / (8 * 1460)`.
//!
//! A bare name is a number of the first flow's row, `FLOW.NAME` one of that flow's (`[FLOW]` if its
//! name has a dash), `sum.NAME` the sum over all flows, `@LINK.NAME` one of a link's, `{PATH}` a
//! setting of the sweep. The operators are + - * / ^, parentheses, sqrt, log, min and max. Goodputs
//! of several flows combine to one number with `total(udt*)`, `sd(udt*, 20, 30)` and others, see
//! `group`.

use packtrain_sim::results::{FlowRow, LinkRow, RunRow};

use super::group::{Group, RunContext, ahead, median_wait};
use super::trend::Trend;

/// Maximum nesting of a formula.
const MAX_DEPTH: u32 = 50;

/// The value of a formula for a run.
pub(super) fn value(text: &str, context: &RunContext<'_>) -> Result<f64, String> {
    let mut reader = Reader { rest: text, run: context.row, context, depth: 0 };
    let value = reader.sum()?;
    if !reader.rest.trim().is_empty() {
        return Err(format!("`{}` cannot stand here in `{text}`", reader.rest.trim()));
    }
    if !value.is_finite() {
        return Err(format!("`{text}` is {value}"));
    }
    Ok(value)
}

struct Reader<'a> {
    rest: &'a str,
    run: &'a RunRow,
    context: &'a RunContext<'a>,
    depth: u32,
}

impl<'a> Reader<'a> {
    fn take(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn sum(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("the formula is too deep".to_owned());
        }
        let mut value = self.product()?;
        loop {
            if self.take('+') {
                value += self.product()?;
            } else if self.take('-') {
                value -= self.product()?;
            } else {
                self.depth -= 1;
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.power()?;
        loop {
            if self.take('*') {
                value *= self.power()?;
            } else if self.take('/') {
                value /= self.power()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn power(&mut self) -> Result<f64, String> {
        let negative = self.take('-');
        let base = self.atom()?;
        let value = if self.take('^') { base.powf(self.atom()?) } else { base };
        Ok(if negative { -value } else { value })
    }

    fn atom(&mut self) -> Result<f64, String> {
        if self.take('(') {
            let value = self.sum()?;
            return self.close(value);
        }
        if self.take('{') {
            let path = self.until('}')?;
            return self
                .run
                .setting(path)
                .ok_or_else(|| format!("no setting `{path}` is a number"));
        }
        if self.take('[') {
            let flow = self.until(']')?;
            return if self.take('.') { self.of_flow(flow) } else { Err("[FLOW].NAME".to_owned()) };
        }
        if self.take('@') {
            let link = self.word();
            return if self.take('.') { self.of_link(link) } else { Err("@LINK.NAME".to_owned()) };
        }
        if let Some(number) = self.number() {
            return Ok(number);
        }
        let word = self.word();
        match word {
            "" => Err(format!("something is missing before `{}`", self.rest.trim())),
            "sqrt" | "log" | "min" | "max" => self.function(word),
            _ if Group::named(word).is_some() && self.take('(') => self.group(word),
            _ if let Some(trend) = Trend::named(word)
                && self.take('(') =>
            {
                self.trend(trend)
            }
            "ahead" if self.take('(') => self.ahead(),
            "median_wait" if self.take('(') => self.median_wait(),
            _ if self.take('.') => self.of_flow(word),
            _ => self.first_flow(word),
        }
    }

    fn close(&mut self, value: f64) -> Result<f64, String> {
        if self.take(')') { Ok(value) } else { Err("a `)` is missing".to_owned()) }
    }

    fn function(&mut self, name: &str) -> Result<f64, String> {
        if !self.take('(') {
            return Err(format!("write {name}(...)"));
        }
        let first = self.sum()?;
        let value = match name {
            "sqrt" => first.sqrt(),
            "log" => first.ln(),
            _ if !self.take(',') => return Err(format!("{name} needs two values")),
            "min" => first.min(self.sum()?),
            _ => first.max(self.sum()?),
        };
        self.close(value)
    }

    /// `NAME(FLOW, LINK, DELAY, LEAST)`, after the open parenthesis.
    fn trend(&mut self, trend: Trend) -> Result<f64, String> {
        let inside = self.until(')')?;
        let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
        match parts[..] {
            [flow, link, delay, min_growth] => match (delay.parse(), min_growth.parse()) {
                (Ok(delay), Ok(min_growth)) => {
                    trend.of(self.context, flow, link, (delay, min_growth))
                }
                _ => Err(format!("`{delay}` or `{min_growth}` is no time in seconds")),
            },
            _ => Err("write NAME(FLOW, LINK, DELAY, LEAST)".to_owned()),
        }
    }

    /// `ahead(FLOW, FLOW)`, after the open parenthesis.
    fn ahead(&mut self) -> Result<f64, String> {
        let inside = self.until(')')?;
        let (first, second) = inside.split_once(',').ok_or("write ahead(FLOW, FLOW)")?;
        ahead(self.context, first.trim(), second.trim())
    }

    /// `median_wait(LINK, FROM, TO)`, after the open parenthesis.
    fn median_wait(&mut self) -> Result<f64, String> {
        let inside = self.until(')')?;
        let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
        match parts[..] {
            [link, from, to] => match (from.parse(), to.parse()) {
                (Ok(from), Ok(to)) => median_wait(self.context, link, from, to),
                _ => Err(format!("`{from}` or `{to}` is no time in seconds")),
            },
            _ => Err("write median_wait(LINK, FROM, TO)".to_owned()),
        }
    }

    /// `NAME(FLOWS)` or `NAME(FLOWS, FROM, TO)`, after the open parenthesis.
    fn group(&mut self, name: &str) -> Result<f64, String> {
        let inside = self.until(')')?;
        let mut parts = inside.split(',').map(str::trim);
        let flows = parts.next().unwrap_or_default();
        let times: Result<Vec<f64>, _> = parts.map(str::parse).collect();
        let span = match times.as_deref() {
            Ok([]) => None,
            Ok([from, to]) => Some((*from, *to)),
            _ => return Err(format!("write {name}(FLOWS) or {name}(FLOWS, FROM, TO)")),
        };
        let group = Group::named(name).ok_or_else(|| format!("no function `{name}`"))?;
        group.of(self.context, flows, span)
    }

    fn number(&mut self) -> Option<f64> {
        self.rest = self.rest.trim_start();
        let digits =
            |text: &str| text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut end = digits(self.rest);
        if end == 0 {
            return None;
        }
        if let Some(exponent) = self.rest[end..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let power = digits(&exponent[sign..]);
            end += if power > 0 { 1 + sign + power } else { 0 };
        }
        let (number, rest) = self.rest.split_at(end);
        let number = number.parse().ok()?;
        self.rest = rest;
        Some(number)
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '\'';
        let end = self.rest.find(|c| !good(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn until(&mut self, end: char) -> Result<&'a str, String> {
        let (inside, rest) =
            self.rest.split_once(end).ok_or_else(|| format!("a `{end}` is missing"))?;
        self.rest = rest;
        Ok(inside.trim())
    }

    fn first_flow(&self, field: &str) -> Result<f64, String> {
        let flow = self.run.flows.first().ok_or("the run has no flow")?;
        of(flow, field)
    }

    fn of_flow(&mut self, name: &str) -> Result<f64, String> {
        let field = self.word();
        if name == "sum" {
            return self.run.flows.iter().map(|flow| of(flow, field)).sum();
        }
        let flow = self.run.flows.iter().find(|flow| flow.name == name);
        of(flow.ok_or_else(|| format!("no flow `{name}`"))?, field)
    }

    fn of_link(&mut self, name: &str) -> Result<f64, String> {
        let field = self.word();
        let link = self.run.links.iter().find(|link| link.name == name);
        let link: &LinkRow = link.ok_or_else(|| format!("no link `{name}`"))?;
        let value = match field {
            "utilisation" => link.utilisation,
            "offered_packets" => link.offered_packets as f64,
            "transmitted_bytes" => link.transmitted_bytes as f64,
            "overflow" => link.dropped.overflow as f64,
            "early" => link.dropped.early as f64,
            "random" => link.dropped.random as f64,
            _ => return Err(format!("a link has no number `{field}`")),
        };
        Ok(value)
    }
}

fn of(flow: &FlowRow, field: &str) -> Result<f64, String> {
    flow.field(field).ok_or_else(|| format!("flow `{}` has no number `{field}`", flow.name))
}
