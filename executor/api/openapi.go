package api

import _ "embed"

// OpenAPI is the description of the API in OpenAPI 3.0, as JSON; the executor
// serves it at /openapi.json. It is written by hand, and tests hold it against
// the types of this package and against the executor's answers.
//
//go:embed openapi.json
var OpenAPI []byte
