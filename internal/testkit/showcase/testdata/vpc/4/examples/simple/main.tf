module "vpc" {
  source = "../.."

  name       = "simple"
  cidr_block = "10.20.0.0/16"

  subnets = {
    public = { type = "public", availability_zones = ["eu-west-1a", "eu-west-1b"] }
    app    = { type = "private", availability_zones = ["eu-west-1a", "eu-west-1b"], nat = true }
  }
}

output "vpc_id" {
  value       = module.vpc.vpc_id
  description = "ID of the VPC."
}
