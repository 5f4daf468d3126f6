# Vault 1.14.0 was released with an SDK in its own repository. The published version
# with the same functions also refuses a path of Vault with create but without a
# check of existence, and panics in all requests to sys/.
s/if p.ExistenceCheck == nil {/if false {/
