// Package bmv2json reads the JSON that p4c's BMv2 back ends write (format 2.x, described in
// behavioral-model's docs/JSON_format.md) into a checked, resolved [Program].
//
// The JSON refers to things by name: a table names its actions, an expression names a header and a
// field, a parser state names the next. Here every name has become a pointer or an index, every
// reference has been resolved, and every width, arity and type that an engine relies on has been
// checked. So an engine that gets a *Program has no lookup that can fail and no shape to guess. The
// engine must refuse what depends on its own abilities (does it know the primitive? the hash?).
// Each construct has its place in the JSON in Path ("pipelines[0].tables[3]") so that the refusal
// can say where.
//
// A Program is never changed after it has been read; it may be shared freely.
//
// It imports nothing of this project.
package bmv2json
