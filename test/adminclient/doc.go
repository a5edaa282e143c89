// Package adminclient is a client of the admin API. A generator has made it from
// docs/reference/admin-api.yaml. It has the calls with which a client of the data plane leases
// sessions, and adds and finds keys. TestGeneratedClient in test/system/inprocess uses it, and so
// shows that the document is enough to write a client.
package adminclient

//go:generate env GOWORK=off go tool -modfile=generate/go.mod oapi-codegen -config generate/config.yaml ../../docs/reference/admin-api.yaml
