//! The source's driver, its reader and the transports.

use super::*;

impl Run<'_> {
    pub(super) fn source_action(&mut self, action: SourceAction) {
        match action {
            SourceAction::Send(message) => {
                let mut bytes = Vec::new();
                encode(&message, &mut bytes);
                self.to_sink.push_back(bytes);
            }
            SourceAction::Assign(id, range) => {
                for chunk in ChunkIndex::covering(&range) {
                    if !self.reported.contains(&chunk) && !self.to_read.contains(&chunk) {
                        self.to_read.push_back(chunk);
                    }
                }
                if let Some(ranges) = self.transports.get_mut(&id) {
                    assert_eq!(
                        ranges.insert(range.clone()),
                        range.end.since(range.start),
                        "assigned twice"
                    );
                }
            }
            SourceAction::Revoke(id, range) => {
                if let Some(ranges) = self.transports.get_mut(&id) {
                    let had: Vec<_> = ranges.intersect(range).collect();
                    for part in had {
                        ranges.remove(part.clone());
                        self.placed.push((id, TransportEvent::Returned(part)));
                    }
                }
            }
            SourceAction::Reread(range) => {
                for chunk in ChunkIndex::covering(&range) {
                    self.reported.remove(&chunk);
                }
            }
            SourceAction::HashFile(id) => self.roots_wanted.push(id),
            SourceAction::Remove(id) => self.to_remove.push(id),
            SourceAction::Compare(piece) => self.to_compare.push(piece),
            SourceAction::Forget(_) => {}
            SourceAction::Finished(outcome) => self.source_outcome = Some(outcome),
        }
    }

    pub(super) fn walk_on(&mut self) {
        let count = 1 + self.rng.below(self.source.walk_credit().min(40) as u64) as usize;
        let entries: Vec<_> = self.walk.drain(..count.min(self.walk.len())).collect();
        if let Some(entry) = entries.iter().find(|e| e.kind == EntryKind::Stream) {
            let size = self.tree[&entry.path].content % (5 * CHUNK.get());
            let size = if self.rng.chance(0.1) { 0 } else { size };
            let id = self.source.totals().entries + entries.len() as u64 - 1;
            self.stream_left = Some((EntryId(id as u32), size));
        }
        self.source.on_entries(self.now, entries);
        if self.walk.is_empty() {
            self.source.on_walk_end(self.now, Vec::new(), Vec::new());
        }
    }

    pub(super) fn content(&self, id: EntryId) -> Option<&SourceEntry> {
        self.tree.get(&self.source.entry(id)?.path)
    }

    pub(super) fn read_chunk(&mut self) {
        let at = self.rng.below(self.to_read.len() as u64) as usize;
        let chunk = self.to_read.remove(at).expect("in range");
        if let Some((id, size)) = self.stream_left {
            let start = self.source.layout().range_of(id).expect("a stream").start.0;
            if chunk.range().end.0 > start + size {
                self.stream_left = None;
                self.source.on_stream_end(self.now, id, size);
                self.pump();
            }
        }
        let pieces = self.source.pieces_needed(chunk);
        let mut digests = Vec::new();
        for piece in pieces {
            if self.rng.chance(self.faults.source) {
                let failure = Failure::new(FailureKind::Unreadable, "a bad sector");
                self.source.on_entry_failed(self.now, piece.entry, failure);
                continue;
            }
            let Some(entry) = self.content(piece.entry) else { continue };
            let len = piece.range.end.0 - piece.range.start.0;
            let content = chunk_content(entry.content, piece.file_offset / CHUNK.get());
            let digest = digest(content, piece.file_offset, len);
            digests.push(PieceDigest { entry: piece.entry, digest });
            if entry.sparse && piece.file_offset == CHUNK.get() {
                self.hole(&piece);
            }
        }
        self.reported.insert(chunk);
        self.source.on_chunk_read(self.now, chunk, digests);
    }

    /// The reader finds that the unmoved part of a piece is a hole.
    pub(super) fn hole(&mut self, piece: &Piece) {
        let waiting: Vec<Range<Offset>> = self
            .transports
            .values()
            .flat_map(|ranges| ranges.intersect(piece.range.clone()).collect::<Vec<_>>())
            .collect();
        for range in waiting {
            self.source.on_hole(self.now, range);
        }
    }

    pub(super) fn hash_file(&mut self) {
        let id = self.roots_wanted.pop().expect("offered");
        let size = self.source.entry(id).and_then(|e| e.size()).unwrap_or_default();
        let contents = self.content(id).map(|entry| chunk_contents(entry.content, size));
        let digest = contents.map(|contents| root(&contents, size));
        self.source.on_root(self.now, id, digest);
    }

    /// Removes a file that the sink has. Nothing that happens to the sink may lose it then.
    pub(super) fn remove(&mut self) {
        let at = self.rng.below(self.to_remove.len() as u64) as usize;
        let id = self.to_remove.swap_remove(at);
        let path = self.source.entry(id).expect("held until it is removed").path.clone();
        let source = &self.tree[&path];
        assert!(self.disk.is_stable(source), "{path:?} is removed and may be lost");
        if self.rng.chance(0.05) {
            let failure = Failure::new(FailureKind::Changed, "it changed");
            self.kept += 1;
            self.source.on_removed(self.now, id, Err(failure));
            return;
        }
        self.removed.insert(path);
        self.source.on_removed(self.now, id, Ok(()));
    }

    pub(super) fn compare(&mut self) {
        let at = self.rng.below(self.to_compare.len() as u64) as usize;
        let piece = self.to_compare.swap_remove(at);
        let index = piece.file_offset / CHUNK.get();
        let len = piece.range.end.0 - piece.range.start.0;
        let content = self.content(piece.entry).map(|entry| chunk_content(entry.content, index));
        let digest = content.map(|content| digest(content, piece.file_offset, len));
        let digest = digest.filter(|_| !self.old_fault());
        self.source.on_compared(self.now, piece.range.start, digest);
    }

    pub(super) fn transport(&mut self) {
        let busy: Vec<_> =
            self.transports.iter().filter(|(_, r)| !r.is_empty()).map(|(id, _)| *id).collect();
        let id = busy[self.rng.below(busy.len() as u64) as usize];
        let max = 1 + self.rng.below(3 * CHUNK.get());
        let ranges = self.transports.get_mut(&id).expect("busy");
        let mut range = ranges.pop_front(packtrain_units::ByteCount(max)).expect("busy");
        if let Some((stream, size)) = self.stream_left {
            let end = self.source.layout().range_of(stream).expect("a stream").start.0 + size;
            if range.end.0 > end {
                let cut = Offset(end.max(range.start.0));
                self.transports.get_mut(&id).expect("busy").insert(cut..range.end);
                range.end = cut;
                if range.start >= cut {
                    return;
                }
            }
        }
        self.move_range(&range);
        if self.rng.chance(0.05) {
            self.move_range(&range);
        }
        self.placed.push((id, TransportEvent::Placed(range)));
    }

    /// Data arrives at the sink and is written.
    pub(super) fn move_range(&mut self, range: &Range<Offset>) {
        for chunk in ChunkIndex::covering(range) {
            for piece in self.source.layout().pieces(chunk) {
                let part = piece.range.start.max(range.start)..piece.range.end.min(range.end);
                if part.start < part.end
                    && let Some(content) = self.content(piece.entry).map(|entry| entry.content)
                {
                    let content = chunk_content(content, piece.file_offset / CHUNK.get());
                    self.arrive(chunk, &piece, &part, content);
                }
            }
        }
    }

    pub(super) fn report_placed(&mut self) {
        let at = self.rng.below(self.placed.len() as u64) as usize;
        let (id, event) = self.placed.remove(at);
        self.source.on_transport_event(self.now, id, event);
    }

    pub(super) fn disturb(&mut self) {
        let ids: Vec<_> = self.transports.keys().copied().collect();
        let id = ids.get(self.rng.below(ids.len() as u64 + 1) as usize).copied();
        match id {
            None => self.up(),
            Some(id) if self.rng.chance(0.3) => {
                self.transports.remove(&id);
                self.placed.retain(|(other, _)| *other != id);
                let failure = Failure::new(FailureKind::Temporary, "gone");
                self.source.on_transport_event(self.now, id, TransportEvent::Closed(failure));
            }
            Some(_) if self.rng.chance(0.5) => self.now += Duration::from_secs(4),
            Some(id) => {
                let ranges = self.transports.get_mut(&id).expect("known");
                if let Some(last) = ranges.last() {
                    ranges.remove(last.clone());
                    self.placed.push((id, TransportEvent::Returned(last)));
                }
            }
        }
        self.source.on_timeout(self.now);
        self.sink.on_timeout(self.now);
    }
}
