"""The Kubernetes engine: a gang is one Indexed Job. May import `engines.base`, `engines.options`,
`engines.agent_bundle` and the plan; the client library only in `api`."""
