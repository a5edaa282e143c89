// Package bmv2json reads the JSON that p4c's BMv2 back ends write (format 2.x, described in
// behavioral-model's docs/JSON_format.md) into a checked, resolved [Program].
//
// The JSON refers to things by name: a table names its actions, an expression names a header and a
// field, a parser state names the next. This package turns every name into a pointer or an index,
// and checks every width, arity and type that engines rely on. So an engine that gets a *Program
// needs no lookup that can fail, and no guess about its structure. The engine itself must refuse
// constructs that it does not support, such as an unknown primitive or hash. Each construct has its
// place in the JSON in Path ("pipelines[0].tables[3]"), so that the refusal can name it.
//
// A Program is never changed after it has been read; it may be shared freely.
//
// It imports no other package of this project.
package bmv2json
