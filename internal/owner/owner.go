// Package owner names the keys that record which deployment of asynq owns a throttle.
package owner

// DeploymentKey is the key in asynq's Redis of the deployment's ID.
const DeploymentKey = "asynq:throttle:deployment"

// Key is the key in the throttle's Redis of the ID of the deployment that owns it.
func Key(throttle string) string { return "thr:{" + throttle + "}:asynq" }
