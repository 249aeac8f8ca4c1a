package redisson

// ScriptParts returns, for each script, the files it is made of.
func ScriptParts() [][]string {
	var parts [][]string
	for _, s := range []*script{acquire, renew, release, force, inspect, ownerAcquire, ownerRenew, ownerRelease,
		rwAcquire, rwRenew, rwRelease, rwForce, rwInspect, rwOwnerAcquire, fairAcquire, fairRelease, fairForce, fairInspect} {
		parts = append(parts, s.parts)
	}
	return parts
}
